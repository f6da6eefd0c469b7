package proxmox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	prefix = "/api2/json"
	// maxPost is the maximum size of a request that is no upload.
	maxPost = 512 << 10
	// maxUpload limits an upload. Proxmox VE has no such limit.
	maxUpload = 64 << 20
	// connectionReset as a fault's error drops the client's connection.
	connectionReset = "reset"
	// noRoute is the answer for another node that does not answer.
	noRoute = 595
)

// failure is an error response. Proxmox VE sends the first line of its message as reason phrase.
type failure struct {
	status  int
	message string
	errors  map[string]string
}

func (f failure) Error() string { return f.message }

// die returns a failure as Perl's die causes it.
func die(format string, args ...any) error {
	return failure{status: http.StatusInternalServerError, message: fmt.Sprintf(format, args...) + "\n"}
}

func badParameters(wrong map[string]string) error {
	return failure{status: http.StatusBadRequest, message: "Parameter verification failed.\n", errors: wrong}
}

func badParameter(name, format string, args ...any) error {
	return badParameters(map[string]string{name: fmt.Sprintf(format, args...)})
}

func unauthorized(message string) error {
	return failure{status: http.StatusUnauthorized, message: message}
}

// ServeHTTP implements http.Handler. Its connections must be HTTP/1.1, because HTTP/2 has no reason
// phrases.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := s.serve(r)
	var broken brokenConnection
	if errors.As(err, &broken) {
		hangUp(w)
		return
	}
	var f failure
	if errors.As(err, &f) {
		if f.status == http.StatusUnauthorized {
			time.Sleep(s.options.Times.Unauthorized)
		}
		refuse(w, r, f)
		return
	}
	if err != nil {
		refuse(w, r, failure{status: http.StatusInternalServerError, message: err.Error() + "\n"})
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.Header().Set("Server", "pve-api-daemon/3.0")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

// serve answers one call, with its planned fault.
func (s *Server) serve(r *http.Request) (any, error) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix)
	if !ok {
		return nil, failure{status: http.StatusNotFound, message: "no such file '" + r.URL.Path + "'"}
	}
	fault := s.options.Plan.Next(r.Method + " " + path)
	if err := fault.Wait(r.Context()); err != nil {
		return nil, brokenConnection{}
	}
	if text, ok := fault.Before(); ok {
		return nil, faultError(text)
	}
	data, err := s.answer(r, path)
	if err != nil {
		return nil, err
	}
	if text, ok := fault.Lost(); ok {
		return nil, faultError(text)
	}
	return data, nil
}

func (s *Server) answer(r *http.Request, path string) (any, error) {
	c, err := s.read(r)
	if err != nil {
		return nil, err
	}
	method, variables := s.find(r.Method, path)
	if method == nil {
		return nil, failure{status: http.StatusNotImplemented, message: fmt.Sprintf("Method '%s %s' not implemented", r.Method, path)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !method.world {
		if c.user, err = s.authenticate(r); err != nil {
			return nil, err
		}
	}
	for name, value := range variables {
		c.given[name] = value
	}
	var wrong map[string]string
	if c.params, wrong = method.params.check(c.given, c.server.major()); len(wrong) > 0 {
		return nil, badParameters(wrong)
	}
	c.vmid, _ = strconv.Atoi(c.params["vmid"])
	if method.allowed != nil {
		if err := method.allowed(c); err != nil {
			return nil, err
		}
	}
	if name, ok := variables["node"]; ok {
		n, known := s.resolve(name)
		if !known {
			return nil, die("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
		}
		if n.Offline {
			return nil, failure{status: noRoute, message: "No route to host"}
		}
		c.node = n
	}
	data, err := method.run(c)
	if err == nil && r.Method != http.MethodGet {
		s.save()
	}
	return data, err
}

// call is one call of a method.
type call struct {
	server *Server
	user   identity
	node   Node
	vmid   int
	given  map[string]any
	params map[string]string
	// file is the uploaded file.
	file []byte
}

// id is the VMID in the path.
func (c *call) id() int { return c.vmid }

func (c *call) flag(name string) bool { return c.params[name] == "1" }

// take removes a parameter and returns it. The remaining parameters are configuration.
func (c *call) take(name string) string {
	v := c.params[name]
	delete(c.params, name)
	return v
}

// read reads the parameters of a request from its body and its query.
func (s *Server) read(r *http.Request) (*call, error) {
	c := &call{server: s, given: map[string]any{}}
	kind, options, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	writes := r.Method == http.MethodPost || r.Method == http.MethodPut
	if writes && kind == "multipart/form-data" {
		if err := c.readUpload(r, options["boundary"]); err != nil {
			return nil, err
		}
	} else if writes {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxPost+1))
		if err != nil {
			return nil, brokenConnection{}
		}
		if len(body) > maxPost {
			return nil, failure{status: http.StatusNotImplemented, message: "for data too large"}
		}
		if err := c.readBody(kind, body); err != nil {
			return nil, err
		}
	}
	c.addForm(r.URL.Query())
	return c, nil
}

func (c *call) readBody(kind string, body []byte) error {
	if kind != "application/json" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return die("malformed form: %s", err)
		}
		c.addForm(form)
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.UseNumber()
	if err := decoder.Decode(&c.given); err != nil {
		return die("malformed JSON string, neither tag, array, object, number, string or atom, at character offset 0 (before %q)", string(body[:min(len(body), 20)]))
	}
	if c.given == nil {
		c.given = map[string]any{}
	}
	return nil
}

func (c *call) addForm(form url.Values) {
	for name, values := range form {
		c.given[name] = values[len(values)-1]
	}
}

func (c *call) readUpload(r *http.Request, boundary string) error {
	if boundary == "" {
		return die("no boundary")
	}
	if err := r.ParseMultipartForm(maxUpload); err != nil {
		return die("upload failed: %s", err)
	}
	c.addForm(r.MultipartForm.Value)
	files := r.MultipartForm.File["filename"]
	if len(files) != 1 {
		return nil
	}
	f, err := files[0].Open()
	if err != nil {
		return die("upload failed: %s", err)
	}
	defer func() { _ = f.Close() }()
	c.given["filename"] = files[0].Filename
	c.file, err = io.ReadAll(f)
	return err
}

// brokenConnection is a missing answer.
type brokenConnection struct{}

func (brokenConnection) Error() string { return "the connection breaks" }

// faultError returns the error of a fault.
func faultError(text string) error {
	if text == connectionReset {
		return brokenConnection{}
	}
	if status, err := strconv.Atoi(text); err == nil {
		return failure{status: status, message: http.StatusText(status)}
	}
	return die("%s", text)
}

// refuse writes an error with its reason phrase, which net/http cannot set.
func refuse(w http.ResponseWriter, r *http.Request, f failure) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxPost))
	answer := map[string]any{"data": nil, "message": f.message}
	if f.errors != nil {
		answer["errors"] = f.errors
	}
	body, _ := json.Marshal(answer)
	reason, _, _ := strings.Cut(f.message, "\n")
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, reason, f.status)
		return
	}
	defer func() { _ = conn.Close() }()
	writeRefusal(buffer.Writer, f.status, reason, body)
}

func writeRefusal(w *bufio.Writer, status int, reason string, body []byte) {
	_, _ = fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nServer: pve-api-daemon/3.0\r\nContent-Type: application/json;charset=UTF-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, reason, len(body), body)
	_ = w.Flush()
}

func hangUp(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
