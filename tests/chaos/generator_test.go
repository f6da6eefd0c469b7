package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// step is one step of a run.
type step struct {
	// pause is the time before it.
	pause time.Duration
	do    func(*env)
}

// want is the expected state of an object: a phase, or the reason for which it is not Ready after a
// user's mistake. A cluster also has a pool.
type want struct {
	phase, reason string
	pool          wantedPool
}

// wantedPool is the pool of workers of a cluster: their number and size, and how many may be away while machines are
// replaced.
type wantedPool struct {
	workers, away int
	size          string
	// inPlace is whether the workers are resized in place, and controlSize the size of the control planes, empty for the
	// default.
	inPlace     bool
	controlSize string
}

// plannedObject is an object of a run in its planned state.
type plannedObject struct {
	subject
	want want
	// fix is the patch that corrects a mistake, or empty.
	fix string
	// minor, controls and provider belong to a cluster, like its pool, the machines that the pool may have above its
	// number while some are replaced, and whether replacements are paused.
	minor, controls, surge int
	pool                   wantedPool
	provider               string
	paused                 bool
	// controlInPlace is whether the control planes are resized in place, and controlHealthCheck whether unhealthy ones are
	// replaced.
	controlInPlace, controlHealthCheck bool
	// dead is whether a node of the cluster has died, and cut whether the network of its workers is cut.
	dead, cut bool
	// protected is whether the object cannot be deleted.
	protected bool
	of        *plannedObject // the cluster that an EtcdBackup is of
}

// generator plans the steps of a run. They follow from the seed and the earlier steps only, and not
// from the behaviour of the stack. A run can be repeated, also without some of its steps.
type generator struct {
	random *rand.Rand
	living []*plannedObject
	next   int
	// long permits steps that take minutes.
	long bool
}

// step returns the next step.
func (a *generator) step() step {
	total := 0
	for _, d := range actions {
		total += d.weight
	}
	for {
		at := a.random.IntN(total)
		for _, d := range actions {
			if at -= d.weight; at >= 0 {
				continue
			}
			if do := d.plan(a); do != nil {
				return step{time.Duration(100+a.random.IntN(500)) * time.Millisecond, do}
			}
			break
		}
	}
}

// create returns a step that creates an object.
func (a *generator) create(b *plannedObject, kind string, version string, spec map[string]any) func(*env) {
	a.living = append(a.living, b)
	s, w := b.subject, b.wanted()
	manifest := map[string]any{"apiVersion": "vitistack.io/" + version, "kind": kind, "spec": spec}
	return func(world *env) { world.create(s, w, manifest) }
}

// patch returns a step that changes an object's spec.
func (a *generator) patch(b *plannedObject, merge string) func(*env) {
	s, w := b.subject, b.wanted()
	return func(world *env) { world.patch(s, w, merge) }
}

// remove returns a step that deletes objects.
func (a *generator) remove(all ...*plannedObject) func(*env) {
	var subjects []subject
	for _, b := range all {
		subjects = append(subjects, b.subject)
		a.living = slices.DeleteFunc(a.living, func(other *plannedObject) bool { return other == b })
	}
	return func(world *env) {
		for _, s := range subjects {
			world.remove(s)
		}
	}
}

// pick returns an existing object of a kind that fits.
func (a *generator) pick(resource schema.GroupVersionResource, fits func(*plannedObject) bool) *plannedObject {
	var all []*plannedObject
	for _, b := range a.living {
		if b.resource == resource && (fits == nil || fits(b)) {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[a.random.IntN(len(all))]
}

func (a *generator) count(resource schema.GroupVersionResource) int {
	n := 0
	for _, b := range a.living {
		if b.resource == resource {
			n++
		}
	}
	return n
}

// named returns an object with an unused name.
func (a *generator) named(resource schema.GroupVersionResource, namespace, prefix string, w want) *plannedObject {
	a.next++
	return &plannedObject{subject: subject{resource, namespace, fmt.Sprintf("%s-%d", prefix, a.next)}, want: w}
}

func (a *generator) of(all ...string) string { return all[a.random.IntN(len(all))] }

// chance is true in one of n cases.
func (a *generator) chance(n int) bool { return a.random.IntN(n) == 0 }

func right(b *plannedObject) bool { return b.fix == "" }

// wanted returns the expected state of an object.
func (b *plannedObject) wanted() want {
	w := b.want
	w.pool = b.pool
	return w
}

// topology returns the topology in a cluster's spec.
func (b *plannedObject) topology() map[string]any {
	version := fmt.Sprintf("1.%d", b.minor)
	pool := map[string]any{
		"name": "pool", "replicas": b.pool.workers, "version": version, "template": b.pool.size,
		"rollout":     map[string]any{"type": rolloutType(b.pool.inPlace), "maxSurge": b.surge, "maxUnavailable": b.pool.away},
		"healthCheck": map[string]any{"unhealthyTimeout": "1m"},
	}
	controls := map[string]any{
		"replicas": b.controls, "version": version, "rollout": map[string]any{"type": rolloutType(b.controlInPlace)},
		"healthCheck": map[string]any{"enabled": b.controlHealthCheck, "unhealthyTimeout": "1m"},
	}
	if b.pool.controlSize != "" {
		controls["template"] = b.pool.controlSize
	}
	if b.provider != "" {
		pool["providerRef"] = map[string]any{"name": b.provider}
		controls["providerRef"] = map[string]any{"name": b.provider}
	}
	return map[string]any{"version": version, "controlplane": controls, "workers": []any{pool}}
}

// rolloutType returns how machines get another size.
func rolloutType(inPlace bool) string {
	if inPlace {
		return string(v1alpha1.RolloutInPlace)
	}
	return string(v1alpha1.RolloutReplace)
}

// topologyPatch returns a cluster's topology, and whether replacements are paused, as a merge patch.
func (b *plannedObject) topologyPatch() string {
	spec := map[string]any{"topology": b.topology(), "upgrade": map[string]any{"paused": b.paused}}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return string(text)
}

// networkSpec returns the spec of the network of a namespace. Manual networks get one half each of the
// engine's addresses, which begin with base.
func networkSpec(namespace, base string) map[string]any {
	spec := map[string]any{"datacenterIdentifier": "no-west-az1", "supervisorIdentifier": "test"}
	static := map[string]any{"type": "static"}
	spec["ipAllocation"] = static
	for i, own := range []string{"chaos-a", "chaos-b"} {
		if namespace != own {
			continue
		}
		first := i * 128
		at := func(n int) string { return fmt.Sprintf("%s.%d", base, first+n) }
		spec["networkProvisioning"] = map[string]any{"provider": "manual", "manual": map[string]any{
			"ipv4CIDR": at(0) + "/25", "ipv4Gateway": at(1), "vlanId": 100 + i,
		}}
		static["static"] = map[string]any{"ipv4RangeStart": at(2), "ipv4RangeEnd": at(126)}
		return spec
	}
	spec["networkProvisioning"] = sourced(map[string]string{"chaos-c": "nam", "chaos-d": "netbox", "chaos-e": "tour-ipam"}[namespace])
	if namespace == "chaos-d" {
		spec["ipAllocation"] = map[string]any{"type": "dhcp"}
	}
	return spec
}

// sourced returns a network from a source.
func sourced(provider string) map[string]any {
	how := map[string]any{"provider": provider}
	switch provider {
	case "nam":
		how["nam"] = map[string]any{"ipFamilies": []any{"IPv4"}, "ipv4PrefixLength": 26}
	case "netbox":
		how["netbox"] = map[string]any{"role": "tenants", "ipv4PrefixLength": 26, "vlanGroup": "tenants"}
	default:
		how["parameters"] = map[string]any{"prefixLength": "26"}
	}
	return how
}
