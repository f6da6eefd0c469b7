// Package gitops says what GitOps tools make of an object: Flux and Helm by kstatus, their own
// library, and Argo CD by running the health checks of docs/argocd-health.yaml.
package gitops

import (
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Kstatus returns the status of an object by kstatus: Current, InProgress, Failed or Terminating.
func Kstatus(o *unstructured.Unstructured) (string, error) {
	result, err := status.Compute(o)
	if err != nil {
		return "", fmt.Errorf("compute the status of %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return string(result.Status), nil
}

// Checks are health checks in Lua by the entries of the ConfigMap argocd-cm.
type Checks map[string]string

// ReadChecks reads the health checks from a file with the ConfigMap.
func ReadChecks(path string) (Checks, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read health checks: %w", err)
	}
	var cm struct {
		Data Checks `json:"data"`
	}
	if err := yaml.Unmarshal(text, &cm); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cm.Data, nil
}

// Health returns the health of an object and its message, as Argo CD does: it runs the check of the
// kind with the object as the global obj.
func (c Checks) Health(o *unstructured.Unstructured) (health, message string, err error) {
	script, ok := c["resource.customizations.health."+o.GroupVersionKind().Group+"_"+o.GetKind()]
	if !ok {
		return "", "", fmt.Errorf("there is no health check for %s", o.GroupVersionKind())
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	// Argo CD opens these libraries, and no others.
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", valueOf(state, o.Object))
	if err := state.DoString(script); err != nil {
		return "", "", fmt.Errorf("run the health check of %s: %w", o.GetKind(), err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the health check of %s returns no table", o.GetKind())
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String(), nil
}

// valueOf returns a JSON value as a value of Lua.
func valueOf(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		t := state.NewTable()
		for _, one := range v {
			t.Append(valueOf(state, one))
		}
		return t
	case map[string]any:
		t := state.NewTable()
		for key, one := range v {
			t.RawSetString(key, valueOf(state, one))
		}
		return t
	default:
		return lua.LNil
	}
}
