package kea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// Result codes of Kea's control API.
const (
	resultOK          = 0
	resultUnsupported = 2
	resultEmpty       = 3
)

// errEmpty is Kea's result 3: the command succeeded and found nothing.
var errEmpty = errors.New("there is nothing")

// unsupportedError is Kea's result 2: the server does not know a command.
type unsupportedError struct{ command string }

func (e unsupportedError) Error() string { return "the server does not have the command " + e.command }

// CommandError is any other result of Kea: the server refuses the command. Text is Kea's own;
// it contains addresses and identifiers, but no time.
type CommandError struct {
	Command string
	Result  int
	Text    string
}

func (e CommandError) Error() string {
	return fmt.Sprintf("refused with result %d: %s", e.Result, e.Text)
}

// offlineError is the answer of a control agent whose DHCP server does not run.
type offlineError struct{ text string }

func (e offlineError) Error() string { return "the DHCP server does not answer its control agent" }

// Client sends commands to one Kea server: to a control agent, or to the HTTP control socket
// of the DHCP server.
type Client struct {
	// Role is primary or secondary.
	Role   string
	http   *httpclient.Client
	report Report
}

// Report is called after each command with the time at which it was sent. err is nil if Kea has answered, whatever its result is.
type Report func(ctx context.Context, role string, began time.Time, err error)

// NewClient returns a Client of a server in the role primary or secondary. report may be nil.
func NewClient(role string, client *httpclient.Client, report Report) *Client {
	return &Client{Role: role, http: client, report: report}
}

// service is what a control agent passes commands on to.
const service = "dhcp4"

// command is a request. A control agent passes it on to Service; the DHCP server itself
// ignores Service.
type command struct {
	Command   string   `json:"command"`
	Service   []string `json:"service"`
	Arguments any      `json:"arguments,omitempty"`
}

// answer is the answer of one server. Kea answers with a list that has one entry for each
// service.
type answer struct {
	Result    int             `json:"result"`
	Text      string          `json:"text"`
	Arguments json.RawMessage `json:"arguments"`
}

// do sends a command and decodes the arguments of its answer into the value that into points
// to, unless into is nil. It returns errEmpty, unsupportedError or CommandError by Kea's
// result, and a *httpclient.Error if there is no result.
func (c *Client) do(ctx context.Context, name string, arguments, into any) error {
	start := time.Now()
	err := c.send(ctx, name, arguments, into)
	observe(c.Role, name, err, time.Since(start))
	c.reportAnswer(ctx, name, start, err)
	if err != nil && !errors.Is(err, errEmpty) {
		return fmt.Errorf("ask the %s Kea server for %s: %w", c.Role, name, err)
	}
	return err
}

// reportAnswer reports whether the server has answered a command. Only an agent without its DHCP server refuses list-commands.
func (c *Client) reportAnswer(ctx context.Context, name string, began time.Time, err error) {
	if c.report == nil {
		return
	}
	var no CommandError
	switch {
	case errors.As(err, &no) && name == listCommands:
		err = offlineError{no.Text}
	case errors.As(err, &no), isEmpty(err), errors.As(err, new(unsupportedError)):
		err = nil
	}
	c.report(ctx, c.Role, began, err)
}

// listCommands is the command that every server has, and that is sent first.
const listCommands = "list-commands"

// Ping sends the cheapest command, for its report.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.commands(ctx)
	return err
}

func (c *Client) send(ctx context.Context, name string, arguments, into any) error {
	var answers []answer
	// request is what a NetworkConfiguration needs of Kea.
	request := httpclient.Request{Method: http.MethodPost, Path: "/", Body: command{name, []string{service}, arguments}}
	if _, err := c.http.Do(ctx, request, &answers); err != nil {
		return err
	}
	if len(answers) != 1 {
		return errNotKea
	}
	switch a := answers[0]; a.Result {
	case resultOK:
		if into == nil {
			return nil
		}
		if json.Unmarshal(a.Arguments, into) != nil {
			return errNotKea
		}
		return nil
	case resultUnsupported:
		return unsupportedError{name}
	case resultEmpty:
		return errEmpty
	default:
		if unforwarded.MatchString(a.Text) {
			return offlineError{a.Text}
		}
		return CommandError{name, a.Result, position.ReplaceAllString(a.Text, "")}
	}
}

// unforwarded matches the answer of a control agent that has lost its DHCP server, or has had no answer from it in five seconds: then the server may
// have carried the command out (src/bin/agent/ca_command_mgr.cc).
var unforwarded = regexp.MustCompile(`^(?i:unable to forward command to the \w+ service)`)

// position matches where in its input Kea's parser stopped, which changes with every other
// edit of the configuration.
var position = regexp.MustCompile(`\s*\([^()]*:\d+:\d+\)`)

// errNotKea says that an answer is JSON, but not that of Kea's control API.
var errNotKea = errors.New("the answer is not one of Kea's control API")

// commands returns the commands that the server has. A control agent that cannot answer has no
// running DHCP server.
func (c *Client) commands(ctx context.Context) (map[string]bool, error) {
	var names []string
	err := c.do(ctx, listCommands, nil, &names)
	var no CommandError
	if errors.As(err, &no) {
		err = fmt.Errorf("ask the %s Kea server for list-commands: %w", c.Role, offlineError{no.Text})
	}
	setHealth(c.Role, err == nil)
	if err != nil {
		return nil, err
	}
	has := make(map[string]bool, len(names))
	for _, name := range names {
		has[name] = true
	}
	return has, nil
}
