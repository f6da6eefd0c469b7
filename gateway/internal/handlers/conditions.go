package handlers

import (
	"encoding/json"

	"github.com/gofiber/fiber/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// conditionsJSON says how a cluster is doing, and why.
type conditionsJSON struct {
	ID         string                 `json:"id"`
	Name       string                 `json:"name"`
	Namespace  string                 `json:"namespace"`
	Status     string                 `json:"status"`
	Phase      string                 `json:"phase"`
	Ready      bool                   `json:"ready"`
	Reason     string                 `json:"reason,omitempty"`
	Message    string                 `json:"message,omitempty"`
	Conditions []advisedConditionJSON `json:"conditions"`
	// Paused is absent unless the annotation vitistack.io/paused keeps every function from changing the cluster.
	Paused *cause.Warning `json:"paused,omitempty"`
}

// advisedConditionJSON is a condition, with what to do about one that needs attention.
type advisedConditionJSON struct {
	conditionJSON
	// Owner is the role that acts, and Advice what it does.
	Owner  string `json:"owner,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// ShowConditions serves the conditions of one cluster, in the order of their last transitions.
func (h *Inventory) ShowConditions(c *fiber.Ctx) error {
	i, snapshot, err := h.find(c, inventory.TopicClusters)
	if err != nil {
		return err
	}
	out := conditionsJSON{
		ID: i.ID, Name: i.Name, Namespace: i.Namespace, Status: i.Status, Phase: i.Phase,
		Ready: i.Readiness.Ready, Reason: i.Readiness.Reason, Message: i.Readiness.Message, Conditions: advisedConditions(i),
		Paused: i.Readiness.Paused(),
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return response.Send(c, snapshot.ETag()+"-conditions-"+i.ID, fiber.MIMEApplicationJSON, httpbody.Body{Plain: body})
}

// advisedConditions returns the conditions of an object in the order of their last transitions, with advice for the ones that
// need attention. The advice for Ready of a paused object is how to end the pause, because nothing else makes it Ready.
func advisedConditions(i *inventory.Item) []advisedConditionJSON {
	all := []advisedConditionJSON{}
	paused := i.Readiness.Paused()
	for _, condition := range conditionsOf(i.Object) {
		advised := advisedConditionJSON{conditionJSON: condition}
		if condition.Status == "Unknown" || cause.IsBad(condition.Type, metav1.ConditionStatus(condition.Status)) {
			advice, ok := i.Readiness.TemplateAdvice[condition.Reason]
			if !ok {
				advice = cause.Advise(string(i.Object.Kind), condition.Reason)
			}
			advised.Owner, advised.Advice = string(advice.Owner), advice.Remedy
			if paused != nil && condition.Type == v1alpha1.ConditionReady {
				advised.Owner, advised.Advice = string(paused.Owner), paused.Remedy
			}
		}
		all = append(all, advised)
	}
	return all
}
