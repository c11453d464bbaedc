package fleet

import (
	"net/url"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
)

// An answer is whole or an error, wherever it breaks off and whatever is changed in it.
func TestIncompleteAnswerIsNotAnAnswer(t *testing.T) {
	a := answer{head: head{Incarnation: "x", Number: 7, State: stateRunning, First: 3, Total: 5},
		records: []record.Attempt{{Seq: 3, Class: record.OK, Backend: "web-1"}, {Seq: 4, Class: record.Refused}}}
	body, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := decode(body); err != nil || len(b.records) != 2 || b.records[0].Backend != "web-1" || b.Number != 7 {
		t.Fatalf("%+v, %v", b, err)
	}
	for n := range body {
		if _, err := decode(body[:n]); err == nil {
			t.Errorf("the first %d bytes of %d are taken for an answer", n, len(body))
		}
		damaged := append([]byte(nil), body...)
		damaged[n] ^= 0x20
		if _, err := decode(damaged); err == nil {
			t.Errorf("an answer with another byte %d is taken for one", n)
		}
	}
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	r := Request{Incarnation: "x y&", Number: 1, From: 2, Command: commandRun}
	if again, err := parseRequest(r.Query()); err != nil || again != r {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []string{"", "number=1&from=2&do=dance", "number=-1&from=0&do=run", "number=1&do=run"} {
		q, err := url.ParseQuery(bad)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := parseRequest(q); err == nil {
			t.Errorf("%q was taken for %+v", bad, r)
		} else if strings.Contains(bad, "dance") && !strings.Contains(err.Error(), "run") {
			t.Errorf("%v names nothing that is known", err)
		}
	}
}

// A journal that nobody fetches from is full some day; it takes all the same what was under way.
func TestFullJournalKeepsEveryAttempt(t *testing.T) {
	j := newJournal("x")
	for i := range journalLimit + 5 {
		if more := j.add(record.Attempt{Seq: uint64(i)}); more != (i < journalLimit-1) {
			t.Fatalf("attempt %d: more is %v", i, more)
		}
	}
	var next uint64
	for next < journalLimit+5 {
		a := j.answer(Request{Incarnation: "x", From: next}, 0)
		if a.First != next || len(a.records) == 0 || a.records[0].Seq != next {
			t.Fatalf("from %d come %d from %d", next, len(a.records), a.First)
		}
		next += uint64(len(a.records))
	}
	if j.answer(Request{Incarnation: "x", From: next}, 0); !j.empty() {
		t.Error("it keeps what was acknowledged")
	}
}
