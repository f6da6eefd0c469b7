// Package domainevents turns changes of objects into domain events, and records, delivers and shows each event exactly once.
package domainevents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// draft is a domain event without its envelope.
type draft struct {
	eventType string
	// suffix distinguishes the event from others of the same object. The event's identifier is the object's UID and the suffix.
	suffix string
	data   any
}

// decision is what to record of an object, and the events to send.
type decision struct {
	// document is the next record of the object. Nil deletes the record.
	document any
	// changed reports whether document differs from the record.
	changed bool
	events  []draft
}

// observed is one object: its current item, or nil if it is deleted, and its record, or nil if it has none.
type observed struct {
	id    string
	now   *inventory.Item
	known json.RawMessage
	// isOld reports that the object is older than the history, so that its existence leads to no event.
	isOld bool
	// namespace and name also identify a deleted object.
	namespace, name string
}

// decide returns what has happened to an object since it was last recorded.
//
//	record  object       decision
//	no      deleted      nothing
//	no      exists, old  record it
//	no      exists       record it, and send events for what has happened so far
//	yes     deleted      delete the record, and send an event
//	yes     exists       record the difference, and send an event for it
func decide(kind inventory.Kind, o observed) (decision, error) {
	if o.now == nil && o.known == nil {
		return decision{}, nil
	}
	switch kind {
	case inventory.KindMachine:
		return decideMachine(o)
	case inventory.KindCluster:
		return decideCluster(o)
	case inventory.KindConfiguration:
		return decideAddress(o)
	default:
		return decision{}, nil
	}
}

// version is the part of each record that says which version of the object last led to a change of the record.
type version struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// isOlder reports whether a resource version is older than another one of the same kind. Versions that are no numbers are not older.
func isOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// knownMachine is what is recorded of a Machine.
type knownMachine struct {
	version
	// Created reports that the event of the machine's creation was sent.
	Created bool              `json:"created"`
	Cluster string            `json:"cluster,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

func decideMachine(o observed) (decision, error) {
	var known knownMachine
	if err := read(o.known, &known); err != nil {
		return decision{}, err
	}
	object := events.Object{UID: o.id, Namespace: o.namespace, Name: o.name}
	if o.now == nil {
		v := decision{changed: true}
		if known.Created {
			v.events = []draft{{events.TypeMachineDeleted, "deleted", events.MachineDeleted{
				Object: object, Cluster: known.Cluster, Labels: known.Labels,
			}}}
		}
		return v, nil
	}
	f := o.now.Object.Facts.(*inventory.Machine)
	runs := f.Phase == string(v1alpha1.MachineRunning)
	next := knownMachine{version: known.version, Created: known.Created || runs, Cluster: f.Cluster, Labels: o.now.Object.Labels}
	changed := o.known == nil || !equal(known, next)
	next.ResourceVersion = o.now.Object.ResourceVersion
	v := decision{document: next, changed: changed}
	if runs && !known.Created && !(o.isOld && o.known == nil) {
		v.events = []draft{{events.TypeMachineCreated, "created", events.MachineCreated{
			Object: object, Cluster: f.Cluster, Provider: f.Provider, Template: f.Template,
			NodeName: f.Host, IPAddresses: f.Addresses, CreatedAt: o.now.Created,
		}}}
	}
	return v, nil
}

// knownCluster is what is recorded of a KubernetesCluster.
type knownCluster struct {
	version
	Phase string          `json:"phase"`
	Spec  json.RawMessage `json:"spec"`
}

func decideCluster(o observed) (decision, error) {
	var known knownCluster
	if err := read(o.known, &known); err != nil {
		return decision{}, err
	}
	object := events.Object{UID: o.id, Namespace: o.namespace, Name: o.name}
	before, err := known.state(o.known)
	if err != nil {
		return decision{}, err
	}
	if o.now == nil {
		changes, err := difference(before, nil)
		return decision{changed: true, events: []draft{{events.TypeClusterUpdated, "deleted", events.ClusterUpdated{
			Object: object, Changes: changes,
		}}}}, err
	}
	next := knownCluster{Phase: o.now.Phase, Spec: o.now.Object.Spec}
	after, err := json.Marshal(next)
	if err != nil {
		return decision{}, fmt.Errorf("encode cluster: %w", err)
	}
	changes, err := difference(before, after)
	if err != nil {
		return decision{}, err
	}
	next.ResourceVersion = o.now.Object.ResourceVersion
	v := decision{document: next, changed: len(changes) > 0}
	if v.changed && !(o.isOld && o.known == nil) {
		v.events = []draft{{events.TypeClusterUpdated, "updated." + o.now.Object.ResourceVersion, events.ClusterUpdated{
			Object: object, Changes: changes,
		}}}
	}
	return v, nil
}

// state returns a record without its version, or nil if there is no record.
func (k knownCluster) state(recorded json.RawMessage) (json.RawMessage, error) {
	if recorded == nil {
		return nil, nil
	}
	k.version = version{}
	document, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("encode cluster: %w", err)
	}
	return document, nil
}

// knownAddress is what is recorded of a NetworkConfiguration.
type knownAddress struct {
	version
	Interfaces []events.NetworkInterface `json:"interfaces"`
}

func decideAddress(o observed) (decision, error) {
	var known knownAddress
	if err := read(o.known, &known); err != nil {
		return decision{}, err
	}
	if o.now == nil {
		return decision{changed: true}, nil
	}
	f := o.now.Object.Facts.(*inventory.Address)
	next, complete := configured(f)
	if !complete {
		// The last complete configuration stays recorded until the next one.
		return decision{document: known, changed: o.known == nil}, nil
	}
	next.version = known.version
	changed := o.known == nil || !equal(known, next)
	next.ResourceVersion = o.now.Object.ResourceVersion
	v := decision{document: next, changed: changed}
	if v.changed && !(o.isOld && o.known == nil) {
		v.events = []draft{{events.TypeNetworkConfigured, "configured." + o.now.Object.ResourceVersion, events.NetworkConfigured{
			Object:           events.Object{UID: o.id, Namespace: o.namespace, Name: o.name},
			NetworkNamespace: f.Network, Interfaces: next.Interfaces,
		}}}
	}
	return v, nil
}

// configured returns the interfaces with their addresses, and false if an interface has none yet.
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

// decideOperator returns whether an operator's health has changed. An operator that is healthy at first leads to no event.
func decideOperator(now *inventory.Item, recorded json.RawMessage, at time.Time) (decision, error) {
	var known knownOperator
	if err := read(recorded, &known); err != nil {
		return decision{}, err
	}
	if now == nil || known.Status == now.Status {
		return decision{}, nil
	}
	v := decision{document: knownOperator{Status: now.Status}, changed: true}
	if recorded != nil || now.Status != inventory.Healthy {
		v.events = []draft{{events.TypeOperatorStatus, fmt.Sprintf("%s.%d", now.Status, at.UnixMilli()), events.OperatorStatus{
			Operator: now.ID, Status: now.Status, Previous: known.Status, Message: now.Readiness.Message,
		}}}
	}
	return v, nil
}

// read decodes a record. No record leaves into unchanged.
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
