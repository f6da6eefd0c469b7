package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/vitistack/stack/functions/internal/wire"
)

// Result codes of Kea's control API.
const (
	resultOK          = 0
	resultUnsupported = 2
	resultEmpty       = 3
)

// errEmpty is Kea's result 3: the command is done, and there is nothing.
var errEmpty = errors.New("there is nothing")

// unsupportedError is Kea's result 2: the server does not know a command.
type unsupportedError struct{ command string }

func (e unsupportedError) Error() string { return "the server does not have the command " + e.command }

// CommandError is any other result of Kea: the server will not do it. Its text is
// Kea's, which names addresses and identifiers and no times.
type CommandError struct {
	Command string
	Result  int
	Text    string
}

func (e CommandError) Error() string {
	return fmt.Sprintf("refused with result %d: %s", e.Result, e.Text)
}

// offlineError is an answer of a control agent whose DHCP server is not there.
type offlineError struct{ text string }

func (e offlineError) Error() string { return "the DHCP server does not answer its control agent" }

// Client speaks Kea's control API with one server: a control agent, or the HTTP
// socket of the DHCP server itself.
type Client struct {
	// Role is primary or secondary.
	Role string
	wire *wire.Client
}

// NewClient returns a Client of a server in the role primary or secondary.
func NewClient(role string, client *wire.Client) *Client { return &Client{Role: role, wire: client} }

// service is what a control agent passes commands on to.
const service = "dhcp4"

// command is a request. Service is for a control agent to know whom to ask; the
// DHCP server itself accepts it.
type command struct {
	Command   string   `json:"command"`
	Service   []string `json:"service"`
	Arguments any      `json:"arguments,omitempty"`
}

// answer is one server's answer. Servers answer with a list of them, which has
// one entry for each service.
type answer struct {
	Result    int             `json:"result"`
	Text      string          `json:"text"`
	Arguments json.RawMessage `json:"arguments"`
}

// do runs a command, and decodes its arguments into what into points to, unless
// into is nil. It returns errEmpty, unsupported or refused as Kea's result says,
// and a *wire.Error where there is no result.
func (c *Client) do(ctx context.Context, name string, arguments, into any) error {
	start := time.Now()
	err := c.send(ctx, name, arguments, into)
	observe(c.Role, name, err, time.Since(start))
	if err != nil && !errors.Is(err, errEmpty) {
		return fmt.Errorf("ask the %s Kea server for %s: %w", c.Role, name, err)
	}
	return err
}

func (c *Client) send(ctx context.Context, name string, arguments, into any) error {
	var answers []answer
	// request is what a NetworkConfiguration needs of Kea.
	request := wire.Request{Method: http.MethodPost, Path: "/", Body: command{name, []string{service}, arguments}}
	if _, err := c.wire.Do(ctx, request, &answers); err != nil {
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
		return CommandError{name, a.Result, position.ReplaceAllString(a.Text, "")}
	}
}

// position is where in its input Kea's parser stood, which moves with what others
// write.
var position = regexp.MustCompile(`\s*\([^()]*:\d+:\d+\)`)

// errNotKea says that an answer is JSON, but none of Kea's.
var errNotKea = errors.New("the answer is not one of Kea's control API")

// commands are those that the server has. A server that cannot even tell is down
// behind its control agent.
func (c *Client) commands(ctx context.Context) (map[string]bool, error) {
	var names []string
	err := c.do(ctx, "list-commands", nil, &names)
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
