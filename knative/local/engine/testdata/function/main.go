// Command function is the function and the gateway in tests of the engine. It records each event, with the rights of its ServiceAccount, and paints
// widgets: it sets their phase and replies with an event.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var widgets = schema.GroupVersionResource{Group: "test.vitistack.io", Version: "v1", Resource: "widgets"}

// record is one line of the file in RECORD.
type record struct {
	Type, Subject, Path, Data, User, ListSecrets string
	Env                                          map[string]string
}

type function struct {
	dynamic dynamic.Interface
	typed   kubernetes.Interface
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	f := &function{}
	if f.dynamic, err = dynamic.NewForConfig(config); err != nil {
		log.Fatal(err)
	}
	if f.typed, err = kubernetes.NewForConfig(config); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := listen(ctx, f); err != nil {
		log.Fatal(err)
	}
}

// listen accepts events at PORT of SERVER_HOST, or only at BROKER_PORT if it is set, until ctx ends.
func listen(ctx context.Context, f *function) error {
	probes, all := http.NewServeMux(), http.NewServeMux()
	probes.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	all.Handle("GET /", probes)
	all.HandleFunc("POST /", f.serve)
	handlers := map[string]http.Handler{os.Getenv("PORT"): all}
	if port := os.Getenv("BROKER_PORT"); port != "" {
		handlers = map[string]http.Handler{os.Getenv("PORT"): probes, port: all}
	}
	done := make(chan error, len(handlers))
	for port, handler := range handlers {
		server := &http.Server{Addr: net.JoinHostPort(os.Getenv("SERVER_HOST"), port), Handler: handler}
		go func() {
			err := server.ListenAndServe()
			if errors.Is(err, http.ErrServerClosed) {
				return // Shutdown returns the error
			}
			done <- err
		}()
		context.AfterFunc(ctx, func() { done <- server.Shutdown(context.Background()) })
	}
	var err error
	for range handlers {
		if err = errors.Join(err, <-done); err != nil {
			return err
		}
	}
	return err
}

func (f *function) serve(w http.ResponseWriter, r *http.Request) {
	e, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply, err := f.handle(r.Context(), r.URL.Path, *e)
	if err != nil {
		log.Print(err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if reply != nil {
		w.Header().Set("Content-Type", cloudevents.ApplicationCloudEventsJSON)
		_ = json.NewEncoder(w).Encode(reply)
	}
}

func (f *function) handle(ctx context.Context, path string, e cloudevents.Event) (*cloudevents.Event, error) {
	who, err := f.typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, secrets := f.typed.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	line := record{Type: e.Type(), Subject: e.Subject(), Path: path, Data: string(e.Data()), User: who.Status.UserInfo.Username, Env: map[string]string{}}
	if secrets != nil {
		line.ListSecrets = secrets.Error()
	}
	for _, name := range []string{"K_SINK", "K_SERVICE", "SERVER_HOST", "COLOR", "PAINT", "RECORD"} {
		line.Env[name] = os.Getenv(name)
	}
	var reply *cloudevents.Event
	if strings.HasSuffix(e.Type(), ".ref.add") {
		if reply, err = f.paint(ctx, e); err != nil {
			return nil, err
		}
	}
	return reply, write(line)
}

// paint sets the phase of the widget in the event.
func (f *function) paint(ctx context.Context, e cloudevents.Event) (*cloudevents.Event, error) {
	namespace, _ := e.Extensions()["namespace"].(string)
	client := f.dynamic.Resource(widgets).Namespace(namespace)
	widget, err := client.Get(ctx, path.Base(e.Subject()), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	patch := []byte(`{"status":{"phase":"Painted"}}`)
	if _, err := client.Patch(ctx, widget.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return nil, err
	}
	reply := e.Clone()
	reply.SetType("test.painted")
	reply.SetSource("/paint")
	return &reply, nil
}

func write(line record) error {
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewEncoder(file).Encode(line)
}
