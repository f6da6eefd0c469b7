package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/gateway/internal/eventsigner"
)

// SigningKeys returns the store of the keys that sign events, in the stack's namespace.
func (c *Client) SigningKeys(namespace string) eventsigner.Store { return signingKeys{c, namespace} }

type signingKeys struct {
	client    *Client
	namespace string
}

func (k signingKeys) Secret(ctx context.Context) (eventsigner.Entries, error) {
	var found struct {
		object
		Data map[string][]byte `json:"data"`
	}
	err := k.read(ctx, "secrets", dsse.SecretName, &found)
	return eventsigner.Entries{Version: found.Metadata.ResourceVersion, Data: found.Data}, err
}

func (k signingKeys) ConfigMap(ctx context.Context) (eventsigner.Entries, error) {
	var found struct {
		object
		Data map[string]string `json:"data"`
	}
	err := k.read(ctx, "configmaps", dsse.ConfigMapName, &found)
	entries := eventsigner.Entries{Version: found.Metadata.ResourceVersion, Data: map[string][]byte{}}
	for name, text := range found.Data {
		entries.Data[name] = []byte(text)
	}
	return entries, err
}

func (k signingKeys) UpdateSecret(ctx context.Context, version string, data map[string][]byte) (bool, error) {
	return k.write(ctx, "secrets", dsse.SecretName, version, data)
}

func (k signingKeys) UpdateConfigMap(ctx context.Context, version string, data map[string][]byte) (bool, error) {
	texts := map[string]*string{}
	for name, value := range data {
		if texts[name] = nil; value != nil {
			text := string(value)
			texts[name] = &text
		}
	}
	return k.write(ctx, "configmaps", dsse.ConfigMapName, version, texts)
}

// object has the metadata of every object.
type object struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

func (k signingKeys) read(ctx context.Context, resource, name string, into any) error {
	raw, err := k.client.core.Get().Namespace(k.namespace).Resource(resource).Name(name).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s, which is installed with the gateway: %w", resource, k.namespace, name, err)
	}
	return nil
}

// write changes data, and returns false if the object has changed since the version was read.
func (k signingKeys) write(ctx context.Context, resource, name, version string, data any) (bool, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "data": data})
	if err != nil {
		return false, fmt.Errorf("write %s %s/%s: %w", resource, k.namespace, name, err)
	}
	err = k.client.core.Patch(types.MergePatchType).Namespace(k.namespace).Resource(resource).Name(name).Body(patch).Do(ctx).Error()
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s %s/%s: %w", resource, k.namespace, name, err)
	}
	return true, nil
}
