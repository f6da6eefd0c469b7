package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/response"
)

// deadLetterJSON is an event that could not be delivered.
type deadLetterJSON struct {
	Sequence    int64           `json:"sequence"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty"`
	Namespace   string          `json:"namespace,omitempty"`
	Name        string          `json:"name,omitempty"`
	Destination string          `json:"destination"`
	Code        int             `json:"code"`
	Error       string          `json:"error"`
	Time        time.Time       `json:"time"`
	Data        json.RawMessage `json:"data"`
}

// ListDeadLetters serves the events that could not be delivered, the newest first.
func (h *History) ListDeadLetters(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	limit, before, err := p.page()
	if err != nil {
		return err
	}
	if err := p.rest(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	letters, err := h.Store.DeadLetters(ctx, before, limit)
	if err != nil {
		return h.unreadable(err)
	}
	if n, err := h.Store.CountDeadLetters(ctx); err == nil {
		c.Set("X-Total-Count", strconv.Itoa(n))
	}
	out := struct {
		DeadLetters []deadLetterJSON `json:"deadLetters"`
	}{DeadLetters: []deadLetterJSON{}}
	for _, l := range letters {
		data := json.RawMessage(l.Data)
		if !json.Valid(data) {
			data = json.RawMessage("null")
		}
		out.DeadLetters = append(out.DeadLetters, deadLetterJSON{
			Sequence: l.Sequence, ID: l.ID, Source: l.Source, Type: l.Type, Subject: l.Subject, Namespace: l.Namespace, Name: l.Name,
			Destination: l.Destination, Code: l.Code, Error: l.Error, Time: l.Time, Data: data,
		})
	}
	if len(letters) == limit {
		linkNext(c, "limit="+strconv.Itoa(limit), letters[len(letters)-1].Sequence)
	}
	return response.JSON(c, http.StatusOK, out)
}
