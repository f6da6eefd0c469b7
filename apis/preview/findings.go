package preview

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/usererror"
)

// Finding is an error or a warning about one document.
type Finding struct {
	Document int    `json:"document"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	// Namespace is that of the object, or empty.
	Namespace string `json:"namespace,omitempty"`
	// Pointer is the JSON pointer of the field, or empty.
	Pointer string `json:"pointer"`
	// Reason is the reason of the condition that the object would have, or empty.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail"`
}

// decode decodes an object into its type. It reports false for one that does not fit, which is refused.
func (m *maker) decode(o *unstructured.Unstructured, into any) bool {
	err := decode(o, into)
	if err != nil && len(m.of.Refusals) == 0 {
		m.refuse("", "", err.Error())
	}
	return err == nil
}

func decode(o *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}

// refuse adds an error about the document, unless the API server has refused the field or a part of it.
func (m *maker) refuse(pointer, reason, detail string) {
	if pointer != "" && slices.ContainsFunc(m.of.Refusals, func(f Finding) bool { return isWithin(f.Pointer, pointer) }) {
		return
	}
	m.Errors = append(m.Errors, m.finding(pointer, reason, detail))
}

// refuseBy adds the error of a decision about the document.
func (m *maker) refuseBy(pointer string, err error) {
	reason, message := reasonOf(err)
	m.refuse(pointer, reason, message)
}

// uncheck adds what a function decides, and the preview cannot.
func (m *maker) uncheck(what string) { m.unchecked = append(m.unchecked, what) }

// note returns what limits the result of a document, or nothing.
func (m *maker) note() string {
	if len(m.unchecked) == 0 {
		return m.of.Note
	}
	note := "not checked before the apply: " + strings.Join(m.unchecked, "; ") + ". The condition Ready says it then"
	if m.of.Note != "" {
		note = m.of.Note + "; " + note
	}
	return note
}

// warn adds a warning about the document, unless it has the same already.
func (m *maker) warn(pointer, reason, format string, args ...any) {
	if f := m.finding(pointer, reason, fmt.Sprintf(format, args...)); !slices.ContainsFunc(m.Warnings, func(w Finding) bool {
		return w.Document == f.Document && w.Detail == f.Detail
	}) {
		m.Warnings = append(m.Warnings, f)
	}
}

func (m *maker) finding(pointer, reason, detail string) Finding {
	return Finding{Document: m.result.Document, Kind: m.result.Kind, Name: m.result.Name, Namespace: m.result.Namespace, Pointer: pointer, Reason: reason, Detail: detail}
}

// reasonOf splits an error of a decision into the reason and the message of a condition.
func reasonOf(err error) (reason, message string) {
	var problem usererror.Error
	if errors.As(err, &problem) {
		return problem.Reason, problem.Message
	}
	return "", err.Error()
}
