package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
)

// attributePrefix is the prefix of the headers of attributes in binary mode
// (CloudEvents HTTP binding 1.0.2, 3.1.3.1).
const attributePrefix = "Ce-"

// Read reads one valid event from a request in binary or structured mode. The keys of
// header are canonical. Read refuses what two readers could interpret differently: a
// repeated attribute, an attribute whose value differs between header and body, and text
// with control characters. The error is binding.ErrUnknownEncoding if the request has no
// event.
func Read(ctx context.Context, header http.Header, body io.ReadCloser) (*event.Event, error) {
	if err := checkHeader(header); err != nil {
		return nil, err
	}
	message := cehttp.NewMessage(header, body)
	defer func() { _ = message.Finish(nil) }()
	e, err := binding.ToEvent(ctx, message)
	if err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if message.ReadEncoding() == binding.EncodingStructured {
		if err := agree(header, *e); err != nil {
			return nil, err
		}
	}
	return e, CheckText(*e)
}

// checkHeader refuses headers whose names are not names of attributes, and repeated
// headers.
func checkHeader(header http.Header) error {
	for key, values := range header {
		name, found := strings.CutPrefix(key, attributePrefix)
		switch {
		case len(values) > 1 && (found || key == "Content-Type"):
			return fmt.Errorf("the header %s is there %d times: send it once", key, len(values))
		case found && (name == "" || strings.ContainsFunc(strings.ToLower(name), notInName)):
			return fmt.Errorf("the header %q names no attribute: write ce- and then lower case letters and digits", key)
		}
	}
	return nil
}

func notInName(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }

// agree refuses headers that differ from the event in the body. It ignores the time,
// which has several notations and decides nothing.
func agree(header http.Header, e event.Event) error {
	attributes := map[string]string{"specversion": e.SpecVersion(), "id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(), "dataschema": e.DataSchema(), "datacontenttype": e.DataContentType()}
	for name, value := range e.Extensions() {
		attributes[name], _ = types.Format(value)
	}
	for key, values := range header {
		name, found := strings.CutPrefix(key, attributePrefix)
		if found && name != "Time" && attributes[strings.ToLower(name)] != values[0] {
			return fmt.Errorf("the header %s is not what the body says: leave it out, or send the event in binary mode", key)
		}
	}
	return nil
}

// CheckText refuses attributes with control characters, which CloudEvents 1.0 forbids
// because neither a header nor a log line can hold them, and attributes and JSON that are
// not valid UTF-8, which no JSON parser of others and no database takes.
func CheckText(e event.Event) error {
	attributes := map[string]any{"id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(), "datacontenttype": e.DataContentType(), "dataschema": e.DataSchema()}
	for name, value := range e.Extensions() {
		attributes[name] = value
	}
	for name, value := range attributes {
		text, ok := value.(string)
		switch {
		case ok && !utf8.ValidString(text):
			return errors.New("the attribute " + name + " is not valid UTF-8: encode it as UTF-8")
		case ok && strings.ContainsFunc(text, unicode.IsControl):
			return errors.New("the attribute " + name + " has a control character: leave it out")
		}
	}
	if isJSON := e.DataMediaType() == event.ApplicationJSON || e.DataMediaType() == ""; isJSON && !utf8.Valid(e.Data()) {
		return errors.New("the data is not valid UTF-8: encode it as UTF-8")
	}
	return nil
}
