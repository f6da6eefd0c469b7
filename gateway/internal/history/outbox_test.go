package history

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOutbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		d := Delivery{Endpoint: "w", EventID: "e1", Type: "t", Body: "{}", Due: noon, Created: noon}
		write(t, s, Record{Events: []Event{anEvent("e1")}, Deliveries: []Delivery{d}})
		write(t, s, Record{Events: []Event{anEvent("e1")}, Deliveries: []Delivery{d}})
		first, err := s.Claim(t.Context(), "w", noon, noon.Add(time.Minute))
		if err != nil || len(first) != 1 {
			t.Fatalf("claimed: %v %v", first, err)
		}
		if second, err := s.Claim(t.Context(), "w", noon, noon.Add(time.Minute)); err != nil || len(second) != 0 {
			t.Errorf("a claimed delivery was claimed again: %v %v", second, err)
		}
		after, err := s.Claim(t.Context(), "w", noon.Add(2*time.Minute), noon.Add(3*time.Minute))
		if err != nil || len(after) != 1 {
			t.Fatalf("an abandoned claim: %v %v", after, err)
		}
		after[0].Attempts, after[0].Error, after[0].Due = 1, "refused", noon.Add(time.Hour)
		if err := s.Retry(t.Context(), after[0]); err != nil {
			t.Fatal(err)
		}
		if due, ok, err := s.NextDue(t.Context(), "w"); !ok || !due.Equal(noon.Add(time.Hour)) || err != nil {
			t.Errorf("next due: %v %v %v", due, ok, err)
		}
		letter := DeadLetter{ID: "e1", Source: "/gateway", Destination: "w", Type: "t", Code: 410, Error: "gone", Time: noon, Data: "{}"}
		if err := s.MoveToDeadLetters(t.Context(), after[0], letter); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := s.NextDue(t.Context(), "w"); ok {
			t.Error("a dead letter is still due")
		}
		letters, err := s.DeadLetters(t.Context(), LetterQuery{Limit: 10})
		if err != nil || len(letters) != 1 {
			t.Fatalf("dead letters: %v %v", letters, err)
		}
		if diff := cmp.Diff(letter, letters[0], cmpopts.IgnoreFields(DeadLetter{}, "Sequence")); diff != "" {
			t.Errorf("dead letter (-want +got):\n%s", diff)
		}
		write(t, s, Record{Events: []Event{anEvent("e2")}, Deliveries: []Delivery{d}})
		if err := s.MoveOtherEndpoints(t.Context(), []string{"other"}, time.Now().Add(time.Hour), func(d Delivery) DeadLetter {
			return DeadLetter{ID: d.EventID, Destination: d.Endpoint, Type: d.Type, Error: "removed", Time: noon, Data: d.Body}
		}); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := s.NextDue(t.Context(), "w"); ok {
			t.Error("a removed endpoint still gets events")
		}
		letters, err = s.DeadLetters(t.Context(), LetterQuery{Text: "REMOVED", Limit: 10})
		if err != nil || len(letters) != 1 || letters[0].ID != "e1" {
			t.Fatalf("the delivery to a removed endpoint is no dead letter: %v %v", letters, err)
		}
		again := Delivery{Endpoint: "other", EventID: "e2", Type: "t", Body: "{}", Due: noon, Created: noon}
		for i, want := range []bool{true, false} {
			removed, err := s.RemoveDeadLetter(t.Context(), letters[0].Sequence, again)
			if err != nil || removed != want {
				t.Errorf("call %d: removed is %t, %v", i, removed, err)
			}
		}
		if claimed, err := s.Claim(t.Context(), "other", noon, noon.Add(time.Minute)); err != nil || len(claimed) != 1 {
			t.Errorf("a dead letter that is sent again is due %d times, %v", len(claimed), err)
		}
	})
}

// TestAnswersInOtherEncodings records the answers of servers that are not UTF-8, or have NUL, as the reason why a delivery failed. A
// delivery whose failure cannot be recorded would be repeated for ever.
func TestAnswersInOtherEncodings(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		write(t, s, Record{Events: []Event{anEvent("e1")}, Deliveries: []Delivery{{Endpoint: "w", EventID: "e1", Type: "t", Body: "{}", Due: noon, Created: noon}}})
		claimed, err := s.Claim(t.Context(), "w", noon, noon.Add(time.Minute))
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed: %v %v", claimed, err)
		}
		d := claimed[0]
		const latin1, known = "it answered 403 Foresp\xf8rselen er avvist \x00", "it answered 403 Foresp\uFFFDrselen er avvist \uFFFD"
		d.Attempts, d.Error = 1, latin1
		if err := s.Retry(t.Context(), d); err != nil {
			t.Errorf("a failed attempt: %v", err)
		}
		if err := s.MoveToDeadLetters(t.Context(), d, DeadLetter{ID: "e1", Destination: "w", Type: "t", Error: latin1, Time: noon, Data: "{}"}); err != nil {
			t.Fatalf("a dead letter: %v", err)
		}
		letters, err := s.DeadLetters(t.Context(), LetterQuery{Limit: 10})
		if err != nil || len(letters) != 1 || letters[0].Error != known {
			t.Errorf("dead letters: %+v %v, want the error %q", letters, err, known)
		}
	})
}

// TestEachDeliveryIsClaimedOnce has concurrent claims.
func TestEachDeliveryIsClaimedOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		const all = 20
		for n := range all {
			id := fmt.Sprintf("e%d", n)
			write(t, s, Record{
				Events:     []Event{anEvent(id)},
				Deliveries: []Delivery{{Endpoint: "w", EventID: id, Type: "t", Body: "{}", Due: noon, Created: noon}},
			})
		}
		var mu sync.Mutex
		times := map[string]int{}
		var claiming sync.WaitGroup
		for range 4 {
			claiming.Go(func() {
				for {
					claimed, err := s.Claim(t.Context(), "w", noon, noon.Add(time.Minute))
					if err != nil {
						t.Errorf("claim: %v", err)
					}
					if len(claimed) == 0 {
						return
					}
					mu.Lock()
					for _, d := range claimed {
						times[d.EventID]++
					}
					mu.Unlock()
					for _, d := range claimed {
						if err := s.Delivered(t.Context(), d); err != nil {
							t.Errorf("conclude: %v", err)
						}
					}
				}
			})
		}
		claiming.Wait()
		for id, n := range times {
			if n != 1 {
				t.Errorf("delivery of %s was claimed %d times", id, n)
			}
		}
		if due, ok, err := s.NextDue(t.Context(), "w"); len(times) != all || ok || err != nil {
			t.Errorf("%d of %d deliveries were claimed, and the next is due: %v %v %v", len(times), all, due, ok, err)
		}
	})
}
