package workload

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Item is one object as etcd would store it.
type Item struct {
	// Key is the object's path below /registry.
	Key string
	// Revision is the revision that wrote it.
	Revision uint64
	Value    []byte
}

// Export returns all objects, in the order of their revisions as far as they are known.
func (c *Cluster) Export() ([]Item, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var items []Item
	for _, k := range kinds {
		for _, obj := range c.store.list(k, "") {
			value, err := json.Marshal(obj)
			if err != nil {
				return nil, err
			}
			at := keyOf(obj)
			path := "/registry/" + registryName(k) + "/"
			if at.namespace != "" {
				path += at.namespace + "/"
			}
			items = append(items, Item{Key: path + at.name, Value: value})
		}
	}
	for i := range items {
		items[i].Revision = uint64(i + 2)
	}
	return items, nil
}

// Import replaces all objects by exported ones.
func (c *Cluster) Import(items []Item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kinds {
		for _, obj := range c.store.list(k, "") {
			if err := c.store.drop(k, obj); err != nil {
				return err
			}
		}
	}
	for _, item := range items {
		k, err := kindAt(item.Key)
		if err != nil {
			return err
		}
		obj := k.empty()
		if err := json.Unmarshal(item.Value, obj); err != nil {
			return fmt.Errorf("decode %s: %w", item.Key, err)
		}
		if err := c.store.put(k, obj); err != nil {
			return err
		}
	}
	return c.reconcile()
}

// registryName returns the path of a resource in the real API server's storage.
func registryName(k *kind) string {
	if k == nodeKind {
		return "minions"
	}
	return k.plural
}

func kindAt(path string) (*kind, error) {
	parts := strings.Split(path, "/")
	for _, k := range kinds {
		if len(parts) > 3 && registryName(k) == parts[2] {
			return k, nil
		}
	}
	return nil, fmt.Errorf("key %q is no object this cluster knows", path)
}
