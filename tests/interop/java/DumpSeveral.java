import kafka.tools.DumpLogSegments;

/** Runs the dump tool once for each argument, which is its command line in one string; a line "# n" goes before each. */
public class DumpSeveral {
    public static void main(String[] arguments) {
        for (int number = 0; number < arguments.length; number++) {
            System.out.println("# " + number);
            DumpLogSegments.main(arguments[number].split(" "));
        }
    }
}
