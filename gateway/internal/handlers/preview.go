package handlers

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/preview"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// Preview serves what the stack would create for a manifest. It applies nothing.
func (h *Inventory) Preview(c *fiber.Ctx) error {
	snapshot, err := h.snapshot()
	if err != nil {
		return err
	}
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	namespace := cmp.Or(p.get("namespace"), "default")
	if err := p.rest(); err != nil {
		return err
	}
	made, err := preview.Make(bytes.Clone(c.Request().Body()), namespace, snapshot)
	if errors.Is(err, preview.ErrUnreadable) {
		return problem.New(http.StatusUnprocessableEntity, "%s", err)
	}
	if err != nil {
		return err
	}
	if made.Namespace != "" {
		if err := h.Access.RequireVisible(c, made.Namespace, rightsOn(inventory.TopicNetworks)); err != nil {
			return err
		}
	}
	return response.JSON(c, http.StatusOK, made)
}
