package fleet

import (
	"net/url"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
)

// An answer that is cut off or changed anywhere is an error.
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
			t.Errorf("the first %d bytes of %d were accepted", n, len(body))
		}
		damaged := append([]byte(nil), body...)
		damaged[n] ^= 0x20
		if _, err := decode(damaged); err == nil {
			t.Errorf("an answer with a changed byte %d was accepted", n)
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
			t.Errorf("%q was accepted as %+v", bad, r)
		} else if strings.Contains(bad, "dance") && !strings.Contains(err.Error(), "run") {
			t.Errorf("%v does not name the known commands", err)
		}
	}
}

// A journal without a collector becomes full, and still stores attempts in flight.
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
			t.Fatalf("a request from %d gave %d records from %d", next, len(a.records), a.First)
		}
		next += uint64(len(a.records))
	}
	if j.answer(Request{Incarnation: "x", From: next}, 0); !j.empty() {
		t.Error("the journal keeps acknowledged records")
	}
}
