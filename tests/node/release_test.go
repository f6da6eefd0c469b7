package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
)

// upgrade upgrades all functions to another tag while machines are created, and rolls back while others are created.
func (e *env) upgrade() {
	images := e.Kubectl("get", "ksvc", "-n", knative.System, "-o", "jsonpath={range .items[*]}{.spec.template.spec.containers[*].image}{'\\n'}{end}")
	for line := range strings.Lines(images) {
		name, _, _ := strings.Cut(filepath.Base(strings.TrimSpace(line)), "@")
		e.Must(time.Minute, "crane", "tag", "--insecure", strings.TrimSpace(line), "v2")
		if name == "" {
			e.T.Fatalf("the image of a Service is empty: %q", images)
		}
	}
	e.Must(time.Minute, "crane", "tag", "--insecure", knative.Repository+"/gateway:v1", "v2")
	const count = 20
	table := e.results.Table("Upgrade", "20 machines are created")
	e.Restart()
	e.createMachines("upgrade-", count)
	e.Must(5*time.Minute, "helm", "upgrade", "vitistack", e.ChartFile(), "--namespace", knative.System, "--reset-then-reuse-values", "--force-conflicts",
		"--set", "image.tag=v2", "--set", "image.digests=null")
	e.awaitRunning("upgrade-", count)
	e.Await("everything is Ready with the new images", 5*time.Minute, func(ctx context.Context) error {
		return errors.Join(e.RequireInstalled(ctx), e.requireImages(ctx, func(image string) bool { return strings.HasSuffix(image, ":v2") }))
	})
	table.Row("helm upgrade, until they are Running, and all functions Ready with the new images", e.Step("helm upgrade: no machine of %d is lost", count))
	e.deleteMachines("upgrade-")
	e.Restart()
	e.createMachines("rollback-", count)
	e.Must(5*time.Minute, "helm", "rollback", "vitistack", "--namespace", knative.System, "--force-conflicts")
	e.awaitRunning("rollback-", count)
	e.Await("everything is Ready with the images of before", 5*time.Minute, func(ctx context.Context) error {
		return errors.Join(e.RequireInstalled(ctx), e.requireImages(ctx, func(image string) bool { return strings.Contains(image, "@sha256:") }))
	})
	table.Row("helm rollback, likewise", e.Step("helm rollback: no machine of %d is lost", count))
	e.deleteMachines("rollback-")
	e.RequireNoneRefused()
}

// requireImages returns an error that names the latest ready revisions of functions whose image is not the wanted one.
func (e *env) requireImages(ctx context.Context, wanted func(string) bool) error {
	out, err := e.Run(ctx, "", "kubectl", "get", "ksvc", "-n", knative.System, "-o",
		"jsonpath={range .items[*]}{.spec.template.spec.containers[0].image} {.status.latestCreatedRevisionName} {.status.latestReadyRevisionName}{'\\n'}{end}")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !wanted(fields[0]) || fields[1] != fields[2] {
			errs = append(errs, fmt.Errorf("the image, and the latest created and ready revision are: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// uninstall removes the stack, which leaves CRDs and objects, installs it again, and then removes everything in the order
// of docs/upgrade.md.
func (e *env) uninstall() {
	e.createMachines("kept-", 1)
	e.awaitRunning("kept-", 1)
	e.Must(5*time.Minute, "helm", "uninstall", "vitistack", "--namespace", knative.System)
	e.Await("the stack is removed", 3*time.Minute, e.requireRemoved)
	e.awaitRunning("kept-", 1)
	e.Step("helm uninstall: CRDs and objects are left")

	// Without functions a deleted machine waits, and says for what.
	e.Kubectl("delete", "machine", "kept-0", "--wait=false")
	const kept = "--field-selector=metadata.name=kept-0"
	held, err := e.List(e.T.Context(), "machines", "-n", "default", kept)
	if err != nil || len(held) != 1 || held[0].Metadata.DeletionTimestamp == "" || len(held[0].Metadata.Finalizers) == 0 {
		e.T.Fatalf("no finalizer holds the deleted machine: %v, %v", held, err)
	}
	e.Step("the deleted machine waits for %s", strings.Join(held[0].Metadata.Finalizers, ", "))

	e.Must(5*time.Minute, "helm", "install", "vitistack", e.ChartFile(), "--namespace", knative.System, "--force-conflicts", "--values", e.ValuesFile())
	e.Await("everything is Ready again", 5*time.Minute, e.RequireInstalled)
	e.Await("the machine is deleted", 5*time.Minute, func(ctx context.Context) error { return e.requireNone(ctx, "machines", "-n", "default", kept) })
	e.Step("helm install: it takes over the objects, and deletes the machine")

	const kinds = "kubernetesclusters,machines,machineproviders,networkconfigurations,ipallocations,networknamespaces,machineclasses,networkpools"
	e.Kubectl("delete", kinds, "-A", "--all", "--timeout=280s")
	e.Must(5*time.Minute, "helm", "uninstall", "vitistack", "--namespace", knative.System)
	e.Kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=vitistack", "--timeout=120s")
	e.Await("nothing of the stack is left", 3*time.Minute, func(ctx context.Context) error {
		return errors.Join(
			e.requireRemoved(ctx),
			e.requireNone(ctx, "crd,clusterroles,clusterrolebindings,validatingadmissionpolicies", "-l", "app.kubernetes.io/part-of=vitistack"),
		)
	})
	e.Step("everything is deleted")
}

// requireRemoved returns an error that names what is left of the stack in its namespace. The simulators have a Trigger
// there.
func (e *env) requireRemoved(ctx context.Context) error {
	return errors.Join(
		e.requireNone(ctx, "ksvc,deployments,services,brokers,apiserversources,pingsources,sinkbindings,pods", "-n", knative.System),
		e.requireNone(ctx, "triggers", "-n", knative.System, "-l", "app.kubernetes.io/part-of=vitistack"),
	)
}
