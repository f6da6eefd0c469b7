package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/problem"
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

func deadLetterOf(l history.DeadLetter) deadLetterJSON {
	data := json.RawMessage(l.Data)
	if !json.Valid(data) {
		data = json.RawMessage("null")
	}
	return deadLetterJSON{
		Sequence: l.Sequence, ID: l.ID, Source: l.Source, Type: l.Type, Subject: l.Subject, Namespace: l.Namespace, Name: l.Name,
		Destination: l.Destination, Code: l.Code, Error: l.Error, Time: l.Time, Data: data,
	}
}

// ListDeadLetters serves the events that could not be delivered, the newest first unless the request has another order.
func (h *History) ListDeadLetters(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	q, err := letterQuery(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	limit := q.Limit
	q.Limit++
	letters, err := h.Store.DeadLetters(ctx, q)
	if err != nil {
		return h.unreadable(err)
	}
	if n, err := h.Store.CountDeadLetters(ctx, q); err == nil {
		c.Set("X-Total-Count", strconv.Itoa(n))
	}
	if len(letters) > limit {
		letters = letters[:limit]
		last := letters[limit-1]
		p.linkNext(c, q.Order, last.Sequence, last.Type, last.Name, last.Time)
	}
	out := struct {
		DeadLetters []deadLetterJSON `json:"deadLetters"`
	}{DeadLetters: []deadLetterJSON{}}
	for _, l := range letters {
		out.DeadLetters = append(out.DeadLetters, deadLetterOf(l))
	}
	return response.JSON(c, http.StatusOK, out)
}

// letterQuery reads the query of a request for dead letters.
func letterQuery(p *parameters) (q history.LetterQuery, err error) {
	q = history.LetterQuery{Destination: p.get("destination")}
	s, err := p.selection()
	q.Namespace, q.Name, q.Source, q.Text = s.namespace, s.name, s.source, s.text
	q.Types, q.Since, q.Until, q.Limit, q.Order = s.types, s.since, s.until, s.limit, s.order
	return q, err
}

// ShowDeadLetter serves one dead letter.
func (h *History) ShowDeadLetter(c *fiber.Ctx) error {
	l, err := h.findLetter(c)
	if err != nil {
		return err
	}
	return response.JSON(c, http.StatusOK, deadLetterOf(l))
}

// DiscardDeadLetter deletes one dead letter.
func (h *History) DiscardDeadLetter(c *fiber.Ctx) error {
	return h.replaceLetter(c, func(history.DeadLetter) ([]history.Delivery, error) { return nil, nil })
}

// ResendDeadLetter delivers the event of a dead letter again, and deletes the dead letter.
func (h *History) ResendDeadLetter(c *fiber.Ctx) error {
	return h.replaceLetter(c, func(l history.DeadLetter) ([]history.Delivery, error) {
		again, err := h.Resend(l)
		if err != nil {
			return nil, problem.New(http.StatusConflict, "dead letter %d cannot be sent again: %s", l.Sequence, err)
		}
		return []history.Delivery{again}, nil
	})
}

// replaceLetter replaces the dead letter of a request by deliveries.
func (h *History) replaceLetter(c *fiber.Ctx, replacements func(history.DeadLetter) ([]history.Delivery, error)) error {
	l, err := h.findLetter(c)
	if err != nil {
		return err
	}
	deliveries, err := replacements(l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	removed, err := h.Store.RemoveDeadLetter(ctx, l.Sequence, deliveries...)
	if err != nil {
		return h.unreadable(err)
	}
	if !removed {
		return noSuchLetter()
	}
	h.Log.Info("Removed dead letter", "sequence", l.Sequence, "eventId", l.ID, "destination", l.Destination, "resent", len(deliveries) > 0)
	c.Status(http.StatusNoContent)
	return nil
}

func (h *History) findLetter(c *fiber.Ctx) (history.DeadLetter, error) {
	sequence, err := strconv.ParseInt(c.Params("sequence"), 10, 64)
	if err != nil || sequence < 1 {
		return history.DeadLetter{}, noSuchLetter()
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	found, err := h.Store.DeadLetters(ctx, history.LetterQuery{Sequence: sequence, Limit: 1})
	if err != nil {
		return history.DeadLetter{}, h.unreadable(err)
	}
	if len(found) == 0 {
		return history.DeadLetter{}, noSuchLetter()
	}
	return found[0], nil
}

func noSuchLetter() error {
	return problem.New(http.StatusNotFound, "there is no dead letter with this sequence: /api/v1/dead-letters lists them")
}
