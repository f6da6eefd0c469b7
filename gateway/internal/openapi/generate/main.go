// Generate writes docs.html out of openapi.yaml, in the folder that it is run in.
package main

import (
	"log"
	"os"

	"github.com/vitistack/stack/gateway/internal/openapi/render"
)

func main() {
	document, err := os.ReadFile("openapi.yaml")
	if err != nil {
		log.Fatal(err)
	}
	page, err := render.HTML(document)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("docs.html", page, 0o644); err != nil {
		log.Fatal(err)
	}
}
