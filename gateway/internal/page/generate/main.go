// Generate writes reasons.js out of apis/cause, in the folder that it is run in.
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strings"

	"github.com/vitistack/stack/apis/cause"
)

func main() {
	text, err := render()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("reasons.js", text, 0o644); err != nil {
		log.Fatal(err)
	}
}

// render returns the module with the advice for each reason: the role that has to act, and the remedy.
func render() ([]byte, error) {
	out := bytes.NewBufferString("// Generated from apis/cause by go generate ./gateway/internal/page. Do not edit.\n// The advice for each reason: the role that has to act, and what it does.\nexport const reasons = {\n")
	for _, reason := range cause.Reasons() {
		kind, name, ofKind := strings.Cut(reason, "/")
		if !ofKind {
			kind, name = "", reason
		}
		advice := cause.Advise(kind, name)
		line, err := json.Marshal([]string{string(advice.Turn), advice.Remedy})
		if err != nil {
			return nil, err
		}
		out.WriteString("  \"" + reason + "\": ")
		out.Write(line)
		out.WriteString(",\n")
	}
	out.WriteString("};\n")
	return out.Bytes(), nil
}
