package nam

import (
	"net/http"
	"strconv"
)

func (s *Server) health(*http.Request) answer {
	return answer{status: http.StatusOK, body: map[string]string{"status": "ok"}}
}

func (s *Server) list(r *http.Request) answer {
	query := r.URL.Query()
	limit := 100
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return problem(http.StatusBadRequest, "limit is a number from 1 to 1000")
		}
		limit = n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items, more := []Segment{}, ""
	for _, uid := range sortedKeys(s.segments) {
		found := s.find(uid)
		if found == nil || uid <= query.Get("continue") ||
			(query.Get("datacenterIdentifier") != "" && query.Get("datacenterIdentifier") != found.Request.DatacenterIdentifier) {
			continue
		}
		if len(items) == limit {
			more = items[limit-1].UID
			break
		}
		items = append(items, s.shownSegment(found))
	}
	body := map[string]any{"items": items}
	if more != "" {
		body["continue"] = more
	}
	return answer{status: http.StatusOK, body: body}
}

func (s *Server) get(r *http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(r.PathValue("uid"))
	if found == nil {
		return noSegment(r)
	}
	return answer{status: http.StatusOK, body: s.shownSegment(found)}
}

func noSegment(r *http.Request) answer {
	return problem(http.StatusNotFound, "there is no segment %s", r.PathValue("uid"))
}

func (s *Server) put(r *http.Request) answer {
	request, refusal := readRequest(r)
	if refusal != nil {
		return *refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := r.PathValue("uid")
	found := s.find(uid)
	if found == nil {
		var refusal *answer
		if found, refusal = s.allot(uid, request); refusal != nil {
			return *refusal
		}
		s.segments[uid] = found
		if err := s.save(); err != nil {
			return problem(http.StatusInternalServerError, "%v", err)
		}
	}
	if !sameRequest(found.Request, request) {
		return problem(http.StatusConflict, "segment %s was created for another request: delete it first", uid)
	}
	return s.progress(found)
}

// progress responds with 200 for a completed request, and with 202 for one in progress.
func (s *Server) progress(r *record) answer {
	shown := s.shownSegment(r)
	switch shown.State {
	case statePending:
		return answer{status: http.StatusAccepted, body: shown, retryAfter: r.ReadyAt.Sub(s.options.Now())}
	case stateDeleting:
		return answer{status: http.StatusAccepted, body: shown, retryAfter: r.GoneAt.Sub(s.options.Now())}
	default:
		return answer{status: http.StatusOK, body: shown}
	}
}

func (s *Server) remove(r *http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := r.PathValue("uid")
	found := s.find(uid)
	switch {
	case found == nil:
		return noSegment(r)
	case s.inUse[uid]:
		return problem(http.StatusConflict, "segment %s is in use by a load balancer: remove that first", uid)
	case s.options.Slow == 0:
		delete(s.segments, uid)
	case found.GoneAt.IsZero():
		found.GoneAt = s.options.Now().Add(s.options.Slow)
	}
	if err := s.save(); err != nil {
		return problem(http.StatusInternalServerError, "%v", err)
	}
	if s.options.Slow == 0 {
		return answer{status: http.StatusNoContent}
	}
	return s.progress(found)
}
