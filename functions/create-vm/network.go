package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

// waits says what a machine waits for that will come by itself.
type waits struct{ reason, message string }

func (w waits) Error() string { return w.reason + ": " + w.message }

// unjoined is a fault of a network that a machine is to be in.
type unjoined struct {
	fault
	network string
}

func (u unjoined) Unwrap() error { return u.fault }

// join publishes the MAC addresses of a machine to layer 2, and returns its
// interfaces once each has its addresses. Until then it returns waits, or a fault
// where somebody has to change something. Where a NetworkConfiguration is missing
// it publishes nothing, so that the machine can still be given other networks.
func (f *functions) join(ctx context.Context, m *v1alpha1.Machine) ([]nic, error) {
	var configurations []*v1alpha1.NetworkConfiguration
	for _, n := range networksOf(m) {
		nc, err := f.configurationOf(ctx, m, n)
		if err != nil {
			return nil, err
		}
		configurations = append(configurations, nc)
	}
	var nics []nic
	for i, n := range networksOf(m) {
		nc := configurations[i]
		mac := macOf(m, n)
		before := nc.DeepCopy()
		name, changed := n.Name, false
		if !metav1.IsControlledBy(nc, m) {
			name, changed = claim(nc, m.Name, n.Name, mac)
		}
		if changed {
			if _, err := f.kube.Patch(ctx, before, nc); err != nil {
				return nil, err
			}
		}
		joined, why, failed := joined(nc, n, name, mac)
		switch {
		case failed:
			return nil, unjoined{fault{"NetworkFailed", why}, nc.Name}
		case why != "":
			return nil, waits{reasonWaiting, why}
		}
		nics = append(nics, joined)
	}
	return nics, nil
}

// configurationOf is the NetworkConfiguration of an interface. A machine that
// says nothing about networks gets one of its own.
func (f *functions) configurationOf(ctx context.Context, m *v1alpha1.Machine, n v1alpha1.MachineNetwork) (*v1alpha1.NetworkConfiguration, error) {
	nc := &v1alpha1.NetworkConfiguration{}
	err := f.kube.Get(ctx, m.Namespace, n.NetworkName, nc)
	switch {
	case err == nil:
		return nc, usable(m, nc)
	case !kube.NotFound(err):
		return nil, err
	case len(m.Spec.Networks) > 0:
		return nil, unjoined{fault{"NetworkConfigurationNotFound", fmt.Sprintf(
			"NetworkConfiguration %s does not exist: create it, or name another in spec.networks", n.NetworkName)}, n.NetworkName}
	}
	return f.ownOf(ctx, m)
}

// asked makes the NetworkConfiguration of a machine that has just come, and tells
// whether that is all for now: layer 2 answers in it whatever it thinks, which is the
// event that goes on, and resync looks at machines without a phase. What hinders it
// hinders the next step as well, which says so.
func (f *functions) asked(ctx context.Context, m *v1alpha1.Machine) bool {
	if m.Status.Phase != "" || len(m.Spec.Networks) > 0 {
		return false
	}
	nc, err := f.ownOf(ctx, m)
	return err == nil && unanswered(nc)
}

// ownOf is the NetworkConfiguration of a machine that says nothing about networks,
// which it makes at the first call.
func (f *functions) ownOf(ctx context.Context, m *v1alpha1.Machine) (*v1alpha1.NetworkConfiguration, error) {
	nn, err := network.Find(ctx, f.kube, m.Namespace, m.Spec.NetworkNamespaceName)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return nil, fault{unresolved.Reason, unresolved.Message}
	}
	if err != nil {
		return nil, err
	}
	nc := ownConfiguration(m, nn.Name)
	err = f.kube.Create(ctx, nc)
	if kube.AlreadyExists(err) {
		if err := f.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil {
			return nil, err
		}
		return nc, usable(m, nc)
	}
	return nc, err
}

// unanswered tells whether a NetworkConfiguration is a machine's own, and layer 2
// has not written anything into it yet, so that it is no news to the machine that
// made it.
func unanswered(nc *v1alpha1.NetworkConfiguration) bool {
	return owned(nc) && nc.DeletionTimestamp == nil && equality.Semantic.DeepEqual(nc.Status, v1alpha1.NetworkConfigurationStatus{})
}

// owned tells whether a NetworkConfiguration is a machine's own, which no other
// machine uses.
func owned(nc *v1alpha1.NetworkConfiguration) bool {
	owner := metav1.GetControllerOf(nc)
	return owner != nil && owner.Kind == "Machine" && owner.Name == nc.Name
}

// usable refuses another machine's own NetworkConfiguration, and that of an earlier
// machine of the same name, which is about to go.
func usable(m *v1alpha1.Machine, nc *v1alpha1.NetworkConfiguration) error {
	owner := metav1.GetControllerOf(nc)
	foreign := owner != nil && owner.Kind == "Machine" && owner.UID != m.UID
	switch {
	case foreign && owner.Name != m.Name:
		return unjoined{fault{"NetworkConfigurationNotFound", fmt.Sprintf(
			"NetworkConfiguration %s is Machine %s's own: name another in spec.networks, or leave that out to get one", nc.Name, owner.Name)}, nc.Name}
	case foreign || nc.DeletionTimestamp != nil:
		return fmt.Errorf("use NetworkConfiguration %s/%s: it is being deleted", nc.Namespace, nc.Name)
	default:
		return nil
	}
}

// leave takes a machine's interfaces out of its networks, and returns what it
// still waits for.
func (f *functions) leave(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error) {
	for _, n := range networksOf(m) {
		nc := &v1alpha1.NetworkConfiguration{}
		err := f.kube.Get(ctx, m.Namespace, n.NetworkName, nc)
		switch {
		case kube.NotFound(err):
			continue
		case err != nil:
			return "", err
		case !metav1.IsControlledBy(nc, m):
			before := nc.DeepCopy()
			if unclaim(nc, m.Name, n.Name, macOf(m, n)) {
				if _, err := f.kube.Patch(ctx, before, nc); err != nil {
					return "", err
				}
			}
			continue
		}
		if err := f.kube.Delete(ctx, nc); err != nil {
			return "", err
		}
		if err := f.kube.Get(ctx, m.Namespace, nc.Name, nc); !kube.NotFound(err) {
			waitsFor = "NetworkConfiguration " + nc.Name
		}
	}
	return waitsFor, nil
}
