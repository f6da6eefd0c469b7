// Generate writes reasons.js out of apis/cause, in the folder that it is run in.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// render returns the module with the advice for each reason, and for what has waited too long: the role that has to act, and the
// remedy.
func render() ([]byte, error) {
	out := bytes.NewBufferString("// Generated from apis/cause by go generate ./gateway/internal/page. Do not edit.\n// The advice for each reason: the role that has to act, what it does, and the kinds of the objects that an object with the reason waits for.\nexport const reasons = {\n")
	for _, reason := range cause.Reasons() {
		kind, name, ofKind := strings.Cut(reason, "/")
		if !ofKind {
			kind, name = "", reason
		}
		if err := writeAdvice(out, reason, cause.Advise(kind, name)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(out, "};\n\n// maxWait is how long something may be on its way, in seconds, before it counts as stuck.\nexport const maxWait = %d;\n\n", int(cause.MaxWait.Seconds()))
	out.WriteString("// overdue is the advice for what has waited for longer, by kind. Other is that of the other kinds.\nexport const overdue = {\n")
	for _, kind := range []string{"NetworkNamespace", "Other"} {
		if err := writeAdvice(out, kind, cause.AdviseOverdue(kind)); err != nil {
			return nil, err
		}
	}
	out.WriteString("};\n")
	return out.Bytes(), nil
}

// writeAdvice writes an entry of an object.
func writeAdvice(out *bytes.Buffer, key string, advice cause.Advice) error {
	entry := []any{string(advice.Turn), advice.Remedy}
	if kinds := advice.WaitsFor(); len(kinds) > 0 {
		entry = append(entry, kinds)
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "  %q: %s,\n", key, line)
	return err
}
