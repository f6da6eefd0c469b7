// Package announce turns what changes in the stack into the domain events, each
// of which is recorded and told exactly once.
package announce

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// happening is a domain event before it has an identity.
type happening struct {
	eventType string
	// mark tells the event from others of the same object; with the object's UID it
	// makes the event's identifier.
	mark string
	data any
}

// verdict is what to do about an object.
type verdict struct {
	// document is what is to be known of the object from now on. It is nil where
	// the object is to be forgotten.
	document any
	// changed tells whether document is other than what is known.
	changed bool
	events  []happening
}

// observed is one object: as it is now, or nil where it is gone, and as it was
// last recorded, or nil where it never was.
type observed struct {
	id    string
	now   *inventory.Item
	known json.RawMessage
	// old tells that the object is older than the history, so that finding it is no
	// news.
	old bool
	// namespace and name are those of an object that is gone.
	namespace, name string
}

// decide says what has happened to an object since it was last recorded.
//
//	recorded  now             verdict
//	no        gone            nothing
//	no        there, old      record it
//	no        there           record it, and tell what has happened so far
//	yes       gone            forget it, and tell that
//	yes       there           record and tell what differs
func decide(kind inventory.Kind, o observed) (verdict, error) {
	if o.now == nil && o.known == nil {
		return verdict{}, nil
	}
	switch kind {
	case inventory.KindMachine:
		return decideMachine(o)
	case inventory.KindCluster:
		return decideCluster(o)
	case inventory.KindAddress:
		return decideAddress(o)
	default:
		return verdict{}, nil
	}
}

// knownMachine is what is recorded of a Machine.
type knownMachine struct {
	// Created tells that the machine has been announced.
	Created bool              `json:"created"`
	Cluster string            `json:"cluster,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

func decideMachine(o observed) (verdict, error) {
	var known knownMachine
	if err := read(o.known, &known); err != nil {
		return verdict{}, err
	}
	object := events.Object{UID: o.id, Namespace: o.namespace, Name: o.name}
	if o.now == nil {
		v := verdict{changed: true}
		if known.Created {
			v.events = []happening{{events.TypeMachineDeleted, "deleted", events.MachineDeleted{
				Object: object, Cluster: known.Cluster, Labels: known.Labels,
			}}}
		}
		return v, nil
	}
	f := o.now.Object.Facts.(*inventory.Machine)
	runs := f.Phase == string(v1alpha1.MachineRunning)
	next := knownMachine{Created: known.Created || runs, Cluster: f.Cluster, Labels: o.now.Object.Labels}
	v := verdict{document: next, changed: o.known == nil || !equal(known, next)}
	if runs && !known.Created && !(o.old && o.known == nil) {
		v.events = []happening{{events.TypeMachineCreated, "created", events.MachineCreated{
			Object: object, Cluster: f.Cluster, Provider: f.Provider, Template: f.Template,
			NodeName: f.Host, IPAddresses: f.Addresses, CreatedAt: o.now.Created,
		}}}
	}
	return v, nil
}

// knownCluster is what is recorded of a KubernetesCluster.
type knownCluster struct {
	Phase string          `json:"phase"`
	Spec  json.RawMessage `json:"spec"`
}

func decideCluster(o observed) (verdict, error) {
	var known knownCluster
	if err := read(o.known, &known); err != nil {
		return verdict{}, err
	}
	object := events.Object{UID: o.id, Namespace: o.namespace, Name: o.name}
	if o.now == nil {
		changes, err := difference(o.known, nil)
		return verdict{changed: true, events: []happening{{events.TypeClusterUpdated, "deleted", events.ClusterUpdated{
			Object: object, Changes: changes,
		}}}}, err
	}
	next := knownCluster{Phase: o.now.Phase, Spec: o.now.Object.Spec}
	document, err := json.Marshal(next)
	if err != nil {
		return verdict{}, fmt.Errorf("encode cluster: %w", err)
	}
	changes, err := difference(o.known, document)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{document: next, changed: len(changes) > 0}
	if v.changed && !(o.old && o.known == nil) {
		v.events = []happening{{events.TypeClusterUpdated, "updated." + o.now.Object.ResourceVersion, events.ClusterUpdated{
			Object: object, Changes: changes,
		}}}
	}
	return v, nil
}

// knownAddress is what is recorded of a NetworkConfiguration.
type knownAddress struct {
	Interfaces []events.NetworkInterface `json:"interfaces"`
}

func decideAddress(o observed) (verdict, error) {
	var known knownAddress
	if err := read(o.known, &known); err != nil {
		return verdict{}, err
	}
	if o.now == nil {
		return verdict{changed: true}, nil
	}
	f := o.now.Object.Facts.(*inventory.Address)
	next, complete := configured(f)
	if !complete {
		// What was configured stays recorded until it is configured otherwise.
		return verdict{document: known, changed: o.known == nil}, nil
	}
	v := verdict{document: next, changed: o.known == nil || !equal(known, next)}
	if v.changed && !(o.old && o.known == nil) {
		v.events = []happening{{events.TypeNetworkConfigured, "configured." + o.now.Object.ResourceVersion, events.NetworkConfigured{
			Object:           events.Object{UID: o.id, Namespace: o.namespace, Name: o.name},
			NetworkNamespace: f.Network, Interfaces: next.Interfaces,
		}}}
	}
	return v, nil
}

// configured is the interfaces with their addresses, and false where one has none
// yet.
func configured(f *inventory.Address) (knownAddress, bool) {
	var all knownAddress
	for _, i := range f.Interfaces {
		if !i.Ready || len(i.Addresses) == 0 {
			return knownAddress{}, false
		}
		all.Interfaces = append(all.Interfaces, events.NetworkInterface{Name: i.Name, MACAddress: i.MAC, Addresses: i.Addresses})
	}
	slices.SortFunc(all.Interfaces, func(a, b events.NetworkInterface) int { return strings.Compare(a.Name, b.Name) })
	return all, len(all.Interfaces) > 0
}

// knownOperator is what is recorded of an operator.
type knownOperator struct {
	Status string `json:"status"`
}

// decideOperator says whether an operator's health has changed. One that is
// healthy when it is first seen is no news.
func decideOperator(now *inventory.Item, recorded json.RawMessage, at time.Time) (verdict, error) {
	var known knownOperator
	if err := read(recorded, &known); err != nil {
		return verdict{}, err
	}
	if now == nil || known.Status == now.Status {
		return verdict{}, nil
	}
	v := verdict{document: knownOperator{Status: now.Status}, changed: true}
	if recorded != nil || now.Status != inventory.Healthy {
		v.events = []happening{{events.TypeOperatorStatus, fmt.Sprintf("%s.%d", now.Status, at.UnixMilli()), events.OperatorStatus{
			Operator: now.ID, Status: now.Status, Previous: known.Status, Message: now.Readiness.Message,
		}}}
	}
	return v, nil
}

// read decodes what is recorded; nothing leaves into as it is.
func read(recorded json.RawMessage, into any) error {
	if recorded == nil {
		return nil
	}
	if err := json.Unmarshal(recorded, into); err != nil {
		return fmt.Errorf("decode what is recorded: %w", err)
	}
	return nil
}

// equal compares two values by their JSON.
func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
