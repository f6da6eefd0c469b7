package main

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/preview"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// makePreview tells what a manifest would become, and applies nothing.
func (g *gateway) makePreview(c *fiber.Ctx) error {
	snapshot, err := g.snapshot()
	if err != nil {
		return err
	}
	namespace := utils.CopyString(c.Query("namespace", "default"))
	made, err := preview.Make(bytes.Clone(c.Request().Body()), namespace, snapshot)
	if errors.Is(err, preview.ErrUnreadable) {
		return problem.New(http.StatusUnprocessableEntity, "%s", err)
	}
	if err != nil {
		return err
	}
	if made.Namespace != "" {
		if err := g.mustSee(c, made.Namespace, resourcesIn(inventory.TopicNetworks)); err != nil {
			return err
		}
	}
	return response.JSON(c, http.StatusOK, made)
}
