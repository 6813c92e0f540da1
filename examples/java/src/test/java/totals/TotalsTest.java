package totals;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class TotalsTest {
    @Test
    @Timeout(value = 1, unit = TimeUnit.MINUTES)
    void ordersAreTotalledByCustomer() throws Exception {
        var totals = Totals.totalOrders(System.getenv("KAFKA_BOOTSTRAP_SERVERS"), "orders", "totals-java", 3);
        assertEquals(Map.of("ann", 12.5, "bob", 5.0), totals);
    }
}
