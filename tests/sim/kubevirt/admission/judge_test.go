package admission_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
	"github.com/vitistack/stack/tests/stand/judge"
)

// ask returns the answer of a webhook of KubeVirt's own virt-api.
func ask(t *testing.T, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	answer, err := judge.Start(t).Review(t.Context(), path, request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// refusal returns the message of an answer, which is empty if the request is allowed.
func refusal(answer *admissionv1.AdmissionResponse) string {
	if answer.Allowed {
		return ""
	}
	return answer.Result.Message
}

func machineRequest(t *testing.T, vm *virtv1.VirtualMachine) *admissionv1.AdmissionRequest {
	t.Helper()
	return request(t, "VirtualMachine", "virtualmachines", vm)
}

// request returns the request that creates an object in the namespace ns.
func request(t *testing.T, kind, resource string, object any) *admissionv1.AdmissionRequest {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	// The schema check of virt-api requires the kind.
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"] = "kubevirt.io/v1", kind
	r := &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "ns",
		Kind:     metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: kind},
		Resource: metav1.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: resource},
	}
	if r.Object.Raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return r
}

// mutated sets the parts of an object that the patch in an answer replaces.
func mutated(t *testing.T, answer *admissionv1.AdmissionResponse, parts map[string]any) {
	t.Helper()
	if !answer.Allowed {
		t.Fatalf("KubeVirt rejects the object: %s", answer.Result.Message)
	}
	var operations []struct {
		Path  string
		Value json.RawMessage
	}
	if err := json.Unmarshal(answer.Patch, &operations); err != nil {
		t.Fatal(err)
	}
	for _, o := range operations {
		if err := json.Unmarshal(o.Value, parts[o.Path]); err != nil {
			t.Fatalf("decode %s: %v", o.Path, err)
		}
	}
}

// TestDefaultsAreKubeVirts compares the defaults with those of KubeVirt's own webhooks. Only the
// identifiers of the firmware are random.
func TestDefaultsAreKubeVirts(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]string{
		"Usual":        nil,
		"Requests":     {"cpu: {cores: 2}", "resources: {requests: {cpu: 3}}"},
		"Limits":       {"cpu: {cores: 2}", "resources: {limits: {cpu: 2}}"},
		"LittleMemory": {"guest: 4Gi", "guest: 512Mi"},
		"Sockets":      {"cores: 2", "sockets: 200, cores: 2"},
		"NoDisk":       {"          - {name: config, disk: {bus: virtio}}\n", ""},
		"NoBus":        {"cdrom: {bus: sata}", "cdrom: {}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := cmpopts.IgnoreFields(virtv1.Firmware{}, "UUID", "Serial")
			empty := cmpopts.EquateEmpty()
			before := machine(t, edits...)
			vm := before.DeepCopy()
			admission.DefaultMachine(vm, true)
			want := before.DeepCopy()
			mutated(t, ask(t, "/virtualmachines-mutate", machineRequest(t, before)), map[string]any{"/spec": &want.Spec, "/metadata": &want.ObjectMeta})
			if diff := cmp.Diff(want, vm, random, empty); diff != "" {
				t.Errorf("defaults of a machine (-KubeVirt +simulator):\n%s", diff)
			}

			first := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: vm.Spec.Template.Spec}
			vmi := first.DeepCopy()
			admission.DefaultInstance(vmi)
			real := first.DeepCopy()
			mutated(t, ask(t, "/virtualmachineinstances-mutate", request(t, "VirtualMachineInstance", "virtualmachineinstances", first)),
				map[string]any{"/spec": &real.Spec, "/metadata": &real.ObjectMeta, "/status": &real.Status})
			// The simulator sets these three with the phase.
			real.Finalizers, real.Status.Phase, real.Status.PhaseTransitionTimestamps = nil, "", nil
			if diff := cmp.Diff(real, vmi, empty); diff != "" {
				t.Errorf("defaults of an instance (-KubeVirt +simulator):\n%s", diff)
			}
		})
	}
}
