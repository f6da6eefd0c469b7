package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
)

// opAdmit is the operation of a client's request. An error that is a number is answered as that HTTP
// status, and any other error as 500 with its text.
const opAdmit = "admit"

// maxReview limits a request of the API server, whose own limit is 3 MiB.
const maxReview = 8 << 20

// reviewer decides about a request.
type reviewer func(*admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// reviews returns the reviewers by path, as virt-api and CDI route requests.
func (s *Simulator) reviews() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, decide reviewer, first bool) {
		mux.Handle("POST "+path, s.review(s.judged(path, decide), first))
	}
	handle("/virtualmachines-mutate", mutateMachine, true)
	handle("/virtualmachineinstances-mutate", mutateInstance, true)
	handle("/virtualmachines-validate", validateMachine, false)
	handle("/virtualmachineinstances-validate-create", validateInstance, false)
	handle("/virtualmachineinstances-validate-update", validateInstanceUpdate, false)
	mux.Handle("POST /datavolume-validate", s.review(s.validateDataVolume, true))
	return mux
}

// judged returns a reviewer that allows what decide and, if the options have one, the judge allow. Its answer has the
// patch of decide.
func (s *Simulator) judged(path string, decide reviewer) reviewer {
	if s.options.Judge == nil {
		return decide
	}
	return func(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		response, err := decide(r)
		if err != nil || !response.Allowed {
			return response, err
		}
		judgement, err := s.options.Judge.Review(context.Background(), path, r)
		if err != nil || !judgement.Allowed {
			return judgement, err
		}
		return response, nil
	}
}

func (s *Simulator) review(decide reviewer, first bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first && !s.admit(w, r) {
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "send an AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		response, err := decide(review.Request)
		if err != nil {
			response = &admissionv1.AdmissionResponse{
				Result: &metav1.Status{Message: err.Error(), Code: http.StatusBadRequest},
			}
		}
		response.UID = review.Request.UID
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			s.log.Debug("answer the API server", "error", err)
		}
	})
}

// admit applies the planned fault to a request, and reports whether the request continues.
func (s *Simulator) admit(w http.ResponseWriter, r *http.Request) bool {
	fault := s.options.Plan.Next(opAdmit)
	if fault.Wait(r.Context()) != nil {
		return false
	}
	if fault.Error == "" {
		return true
	}
	code, err := strconv.Atoi(fault.Error)
	if err != nil || code < 400 || code > 599 {
		code = http.StatusInternalServerError
	}
	http.Error(w, fault.Error, code)
	return false
}

func requestOf(r *admissionv1.AdmissionRequest) admission.Request {
	return admission.Request{
		Created: r.Operation == admissionv1.Create, Namespace: r.Namespace,
		Internal: r.UserInfo.Username == ServiceAccount,
	}
}

func mutateMachine(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	vm, _, err := objects[virtv1.VirtualMachine](r)
	if err != nil {
		return nil, err
	}
	before := vm.DeepCopy()
	admission.DefaultMachine(vm, r.Operation == admissionv1.Create)
	if r.Operation == admissionv1.Create {
		markMachine(vm) // virt-controller would do so a moment later
	}
	return patched(map[string][2]any{
		"/spec": {before.Spec, vm.Spec}, "/metadata": {before.ObjectMeta, vm.ObjectMeta},
	})
}

func mutateInstance(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	vmi, old, err := objects[virtv1.VirtualMachineInstance](r)
	if err != nil {
		return nil, err
	}
	before := vmi.DeepCopy()
	if r.Operation == admissionv1.Create {
		admission.DefaultInstance(vmi)
		vmi.Finalizers = append(vmi.Finalizers, virtv1.VirtualMachineInstanceFinalizer)
		enterPhase(vmi, virtv1.Pending, metav1.Now())
	} else {
		admission.KeepInstanceStatus(vmi, old, requestOf(r))
	}
	return patched(map[string][2]any{
		"/spec": {before.Spec, vmi.Spec}, "/metadata": {before.ObjectMeta, vmi.ObjectMeta}, "/status": {before.Status, vmi.Status},
	})
}

func validateMachine(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	vm, old, err := objects[virtv1.VirtualMachine](r)
	if err != nil {
		return nil, err
	}
	causes, warnings := admission.ValidateMachine(vm, old, requestOf(r))
	return answer(causes, warnings...), nil
}

func validateInstance(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	vmi, _, err := objects[virtv1.VirtualMachineInstance](r)
	if err != nil {
		return nil, err
	}
	return answer(admission.ValidateInstance(vmi, requestOf(r))), nil
}

func validateInstanceUpdate(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	vmi, old, err := objects[virtv1.VirtualMachineInstance](r)
	if err != nil {
		return nil, err
	}
	return answer(admission.ValidateInstanceUpdate(vmi, old, requestOf(r))), nil
}

func (s *Simulator) validateDataVolume(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	dv, old, err := objects[cdiv1.DataVolume](r)
	if err != nil {
		return nil, err
	}
	return answer(admission.ValidateDataVolume(dv, old, s.api.claims.get(r.Namespace, dv.Name))), nil
}

// objects decodes the object of a request and its old state, which is nil for a creation.
func objects[T any](r *admissionv1.AdmissionRequest) (now, old *T, err error) {
	now = new(T)
	if err := json.Unmarshal(r.Object.Raw, now); err != nil {
		return nil, nil, schemaError(err)
	}
	if len(r.OldObject.Raw) == 0 {
		return now, nil, nil
	}
	old = new(T)
	if err := json.Unmarshal(r.OldObject.Raw, old); err != nil {
		return nil, nil, fmt.Errorf("decode the old object: %w", err)
	}
	return now, old, nil
}

// schemaError returns the message about a wrong type, in the words of virt-api's schema validation.
func schemaError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("decode the object: %w", err)
	}
	want := wrong.Type.Kind().String()
	switch wrong.Type.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		want = "integer"
	case reflect.Bool:
		want = "boolean"
	case reflect.Slice:
		want = "array"
	case reflect.Struct, reflect.Map:
		want = "object"
	}
	return fmt.Errorf("%s in body must be of type %s: %q", wrong.Field, want, wrong.Value)
}

// patched allows an object and replaces the parts that differ.
func patched(parts map[string][2]any) (*admissionv1.AdmissionResponse, error) {
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	var operations []operation
	for path, states := range parts {
		before, err := json.Marshal(states[0])
		if err != nil {
			return nil, err
		}
		after, err := json.Marshal(states[1])
		if err != nil {
			return nil, err
		}
		if string(before) != string(after) {
			operations = append(operations, operation{Op: "add", Path: path, Value: after})
		}
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if len(operations) == 0 {
		return response, nil
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	response.Patch, response.PatchType = body, new(admissionv1.PatchTypeJSONPatch)
	return response, nil
}

// answer allows a request, or rejects it with the causes.
func answer(causes admission.Causes, warnings ...string) *admissionv1.AdmissionResponse {
	if len(causes) == 0 {
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: warnings}
	}
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Message: causes.Message(),
		Reason:  metav1.StatusReasonInvalid,
		Code:    http.StatusUnprocessableEntity,
		Details: &metav1.StatusDetails{Causes: causes.Named()},
	}}
}
