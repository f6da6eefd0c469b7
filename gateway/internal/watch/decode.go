package watch

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// oneKind decodes what a watch of one kind brings. The serializers of client-go
// first decode an object completely to find its kind; here the kind
// is known. They decode all other kinds, such as Status.
type oneKind struct {
	runtime.NegotiatedSerializer
	scheme *runtime.Scheme
	kind   schema.GroupVersionKind
}

// SupportedMediaTypes are those of client-go.
func (k oneKind) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(k.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if s := types[i].StreamSerializer; s != nil && types[i].MediaType == runtime.ContentTypeJSON {
			stream := *s
			stream.Serializer = envelopes{s.Serializer}
			types[i].StreamSerializer = &stream
		}
	}
	return types
}

// DecoderToVersion decodes objects of the kind.
func (k oneKind) DecoderToVersion(serializer runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return objects{k.NegotiatedSerializer.DecoderToVersion(serializer, version), k}
}

type objects struct {
	runtime.Decoder
	of oneKind
}

// Decode decodes an object of the kind into a new one.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil {
		return o.Decoder.Decode(data, defaults, into)
	}
	made, err := o.of.scheme.New(o.of.kind)
	if err != nil {
		return nil, nil, err
	}
	kind := made.GetObjectKind()
	if json.Unmarshal(data, made) != nil || kind.GroupVersionKind() != o.of.kind {
		return o.Decoder.Decode(data, defaults, nil)
	}
	kind.SetGroupVersionKind(schema.GroupVersionKind{})
	return made, &o.of.kind, nil
}

// envelopes decodes the events of a watch, whose objects stay as they are.
type envelopes struct{ runtime.Serializer }

// Decode decodes an event. One that is written as API servers write it is not parsed.
func (e envelopes) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if eventType, object, ok := open(data); ok {
			event.Type, event.Object.Raw = eventType, object
			return event, defaults, nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}

// open takes an event apart that has its two fields in the usual order.
func open(event []byte) (eventType string, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(event, []byte(`{"type":"`))
	if !ok {
		return "", nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","object":`))
	if !ok || bytes.ContainsAny(name, `"\\`) {
		return "", nil, false
	}
	object, ok = bytes.CutSuffix(rest, []byte("}"))
	return string(name), object, ok
}
