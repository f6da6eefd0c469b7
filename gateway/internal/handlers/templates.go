package handlers

import (
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// ShowTemplate serves one ClusterTemplate with its clusters.
func (h *Inventory) ShowTemplate(c *fiber.Ctx) error {
	i, snapshot, err := h.find(c, inventory.TopicTemplates)
	if err != nil {
		return err
	}
	return response.Send(c, snapshot.ETag()+"-"+i.ID, fiber.MIMEApplicationJSON, httpbody.Body{Plain: inventory.TemplateDetail(i, snapshot)})
}
