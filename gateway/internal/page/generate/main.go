// Generate writes reasons.js out of apis/cause, in the folder that it is run in.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/versions"
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
	fmt.Fprintf(out, "};\n\n// conditionsPage is the address of the page with a section for each reason.\nexport const conditionsPage = %q;\n", cause.ConditionsPage)
	fmt.Fprintf(out, "\n// maxWait is how long something may be on its way, in seconds, before it counts as stuck.\nexport const maxWait = %d;\n\n", int(cause.MaxWait.Seconds()))
	out.WriteString("// overdue is the advice for what has waited for longer, by kind. Other is that of the other kinds.\nexport const overdue = {\n")
	for _, kind := range []string{"NetworkNamespace", "Other"} {
		if err := writeAdvice(out, kind, cause.AdviseOverdue(kind)); err != nil {
			return nil, err
		}
	}
	out.WriteString("};\n\n// newestKubernetes is the newest minor version of Kubernetes that each minor version of Talos runs.\nexport const newestKubernetes = {\n")
	writeVersions(out)
	out.WriteString("};\n")
	return out.Bytes(), nil
}

// writeVersions writes an entry for each minor version of Talos up to the default one.
func writeVersions(out *bytes.Buffer) {
	newest := semver.MustParse(versions.DefaultTalos)
	for minor := range newest.Minor + 1 {
		if kubernetes, err := semver.Parse(versions.Newest(fmt.Sprintf("%d.%d.0", newest.Major, minor))); err == nil {
			fmt.Fprintf(out, "  \"%d.%d\": \"%d.%d\",\n", newest.Major, minor, kubernetes.Major, kubernetes.Minor)
		}
	}
}

// writeAdvice writes an entry of an object.
func writeAdvice(out *bytes.Buffer, key string, advice cause.Advice) error {
	entry := []any{string(advice.Owner), advice.Remedy}
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
