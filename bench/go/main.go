// Command kfake runs franz-go's kfake as one broker, with its data on disk.
//
// Its argument is a file of properties: `port` (0 for any free one) and `data.dir`. It serves until SIGTERM or SIGINT.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: kfake PROPERTIES_FILE")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	settings, err := properties(path)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(settings["port"])
	if err != nil {
		return fmt.Errorf("%s: port is %q, expected a number", path, settings["port"])
	}
	if settings["data.dir"] == "" {
		return fmt.Errorf("%s: data.dir is missing, expected a folder", path)
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(port),
		kfake.DataDir(settings["data.dir"]),
	)
	if err != nil {
		return err
	}
	<-stopped
	cluster.Close()
	return nil
}

// properties reads lines of the form key=value.
func properties(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	settings := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, found := strings.Cut(lines.Text(), "=")
		if !found {
			return nil, fmt.Errorf("%s: %q, expected key=value", path, lines.Text())
		}
		settings[key] = value
	}
	return settings, lines.Err()
}
