// Package judge asks KubeVirt's own code about the objects that KubeVirt's simulator receives. The code runs in the program of
// tests/judges/kubevirt, because its dependencies do not build together with those of this module.
package judge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// timeout bounds each request. It is long, because the machine may be busy.
const timeout = time.Minute

// Judge is a running program.
type Judge struct {
	url    string
	client *http.Client
	// input keeps the program running. The runtime would close an unreachable pipe.
	input io.Closer
}

// Program returns the path of the program, or an error that says how to build it.
func Program() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "vitistack", "bin", "kubevirt-judge")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find KubeVirt's webhooks: %w (run make prepare)", err)
	}
	return path, nil
}

// Start starts a program. It ends with this process, because its standard input is closed then.
func Start(program string) (*Judge, error) {
	command := exec.Command(program)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start KubeVirt's webhooks: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the URL of KubeVirt's webhooks: %w", err), command.Wait())
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	return &Judge{url: strings.TrimSpace(line), input: in, client: &http.Client{Transport: transport, Timeout: timeout}}, nil
}

// Review returns the answer of the webhook at a path of virt-api.
func (j *Judge) Review(ctx context.Context, path string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	review := admissionv1.AdmissionReview{Request: request}
	review.APIVersion, review.Kind = admissionv1.SchemeGroupVersion.String(), "AdmissionReview"
	var answer admissionv1.AdmissionReview
	if err := j.post(ctx, path, review, &answer); err != nil {
		return nil, err
	}
	if answer.Response == nil {
		return nil, fmt.Errorf("KubeVirt's webhook %s has answered without a response", path)
	}
	return answer.Response, nil
}

// CloudInit returns the files of the cloud-init image of an instance, by their paths in it. The secrets are those of
// its volumes, by volume and key. The error is that of virt-launcher, with which the instance could not start.
func (j *Judge) CloudInit(ctx context.Context, vmi *virtv1.VirtualMachineInstance, secrets map[string]map[string][]byte) (map[string][]byte, error) {
	var files map[string][]byte
	err := j.post(ctx, "/cloud-init", map[string]any{"instance": vmi, "secrets": secrets}, &files)
	return files, err
}

func (j *Judge) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, j.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := j.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask KubeVirt's webhooks: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask KubeVirt's webhooks: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", strings.TrimSpace(string(text)))
	}
	return json.Unmarshal(text, out)
}
