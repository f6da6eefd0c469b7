// Command reference writes the pages of docs/reference: the fields of each custom resource from the
// CRDs, the reasons of conditions with their remedies from apis/cause, the data of events from their schemas, the requests of the REST API
// from its description, and the metrics from the code of the gateway and the pages of functions. Run it in the root of the
// repository, as make generate does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is where the pages are.
const folder = "docs/reference"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// readFiles returns the content of the files that match a pattern, by their paths.
func readFiles(pattern string) (map[string][]byte, error) {
	paths, err := filepath.Glob(pattern)
	files := map[string][]byte{}
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return files, err
}

// run replaces the pages, so that a page of a kind that is gone does not stay.
func run() error {
	pages, err := resourcePages("apis/crds")
	if err != nil {
		return err
	}
	functions, err := readFunctionPages()
	if err != nil {
		return err
	}
	pages["conditions.md"] = conditionsPage(functions)
	if pages["events.md"], err = eventsPage("events/schemas"); err != nil {
		return err
	}
	if pages["rest.md"], err = restPage("gateway/internal/openapi/openapi.yaml"); err != nil {
		return err
	}
	metrics, err := gatewayMetrics()
	if err != nil {
		return err
	}
	pages["metrics.md"] = metricsPage(metrics, functions)
	pages["README.md"] = indexPage(pages)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
