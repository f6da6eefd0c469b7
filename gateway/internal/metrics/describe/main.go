// Command describe prints the metrics of the gateway as JSON, from which tools/reference makes a page.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/vitistack/stack/gateway/internal/metrics"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(metrics.NewGateway(metrics.Options{}, metrics.Sources{}).Describe()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
