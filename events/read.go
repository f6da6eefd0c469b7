package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
)

// attributePrefix is what the headers of attributes begin with in binary mode
// (CloudEvents HTTP binding 1.0.2, 3.1.3.1).
const attributePrefix = "Ce-"

// Read reads one valid event out of a request in binary or structured mode. The keys
// of header are canonical. What two readers could read differently is an error: an
// attribute that is given twice, or otherwise in a header than in the body, and text
// with control characters. An error for which errors.Is finds
// binding.ErrUnknownEncoding means that there is no event at all.
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

// checkHeader refuses headers of attributes that are no name of one, or that are
// there more than once.
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

// agree refuses headers that say otherwise than the event in the body. The time may
// be written in more than one way, and nothing is decided by it.
func agree(header http.Header, e event.Event) error {
	told := map[string]string{"specversion": e.SpecVersion(), "id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(), "dataschema": e.DataSchema(), "datacontenttype": e.DataContentType()}
	for name, value := range e.Extensions() {
		told[name], _ = types.Format(value)
	}
	for key, values := range header {
		name, found := strings.CutPrefix(key, attributePrefix)
		if found && name != "Time" && told[strings.ToLower(name)] != values[0] {
			return fmt.Errorf("the header %s is not what the body says: leave it out, or send the event in binary mode", key)
		}
	}
	return nil
}

// CheckText refuses attributes with control characters, which CloudEvents 1.0
// forbids, since no header and no line of a log can hold them.
func CheckText(e event.Event) error {
	attributes := map[string]any{"id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(), "datacontenttype": e.DataContentType(), "dataschema": e.DataSchema()}
	for name, value := range e.Extensions() {
		attributes[name] = value
	}
	for name, value := range attributes {
		if text, ok := value.(string); ok && strings.ContainsFunc(text, unicode.IsControl) {
			return errors.New("the attribute " + name + " has a control character: leave it out")
		}
	}
	return nil
}
