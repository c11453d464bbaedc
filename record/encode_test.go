package record

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var sameAddresses = cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})

func anyAttempt() *rapid.Generator[Attempt] {
	return rapid.Custom(func(t *rapid.T) Attempt {
		word := rapid.SampledFrom([]string{"", "web-1", "node-1", "5d9f", "ECONNREFUSED", "größer"})
		span := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "ns")) })
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			switch rapid.IntRange(0, 2).Draw(t, "family") {
			case 0:
				return netip.Addr{}
			case 1:
				return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
			}
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
		})
		a := Attempt{Lane: rapid.Uint16().Draw(t, "lane"), Seq: rapid.Uint64().Draw(t, "seq"), Intended: span.Draw(t, "intended"),
			Start: span.Draw(t, "start"), Connect: span.Draw(t, "connect"), Total: span.Draw(t, "total"),
			Class: rapid.SampledFrom(Classes()).Draw(t, "class"), Retrans: rapid.Uint8().Draw(t, "retrans"),
			TupleAge: span.Draw(t, "age"), Backend: word.Draw(t, "backend"), Node: word.Draw(t, "node"), Client: word.Draw(t, "client"),
			Generation: word.Draw(t, "generation"), Terminating: span.Draw(t, "terminating"), Offender: address.Draw(t, "offender"),
			Detail: word.Draw(t, "detail")}
		if source := address.Draw(t, "source"); source.IsValid() {
			a.Source = netip.AddrPortFrom(source, rapid.Uint16().Draw(t, "port"))
		}
		return a
	})
}

func encode(t interface{ Fatal(...any) }, attempts []Attempt) []byte {
	var b bytes.Buffer
	w := NewAttemptWriter(&b)
	for _, a := range attempts {
		if err := w.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decode(data []byte) ([]Attempt, error) {
	r := NewAttemptReader(bytes.NewReader(data))
	var all []Attempt
	for {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, a)
	}
}

func TestAttemptsComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(anyAttempt(), 0, 20).Draw(t, "attempts")
		got, err := decode(encode(t, want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the attempts changed (-written +read):\n%s", diff)
		}
	})
}

func TestAStreamThatEndsEarlyIsReadableUpToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(anyAttempt(), 1, 8).Draw(t, "attempts")
		whole := encode(t, want)
		cut := rapid.IntRange(0, len(whole)-1).Draw(t, "cut")
		got, err := decode(whole[:cut])
		if len(got) > len(want) || !cmp.Equal(want[:len(got)], got, sameAddresses, cmpopts.EquateEmpty()) {
			t.Fatalf("cut at %d of %d bytes: %d attempts read, and they are not the first ones", cut, len(whole), len(got))
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d of %d bytes: %v, want an unexpected end", cut, len(whole), err)
		}
		if cut < len(AttemptsMagic) && err == nil {
			t.Fatalf("cut at %d inside the header, and nobody noticed", cut)
		}
	})
}

func TestDamagedAttemptsNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := encode(t, rapid.SliceOfN(anyAttempt(), 1, 8).Draw(t, "attempts"))
		for range rapid.IntRange(1, 5).Draw(t, "bytes") {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		got, err := decode(data)
		if err == nil && len(got) == 0 {
			t.Fatal("a damaged stream was read as an empty one")
		}
	})
}

func TestAnEmptyFileOfAttemptsIsNotARunWithoutAttempts(t *testing.T) {
	dir := t.TempDir()
	w, err := NewHistoryWriter(dir, Run{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, AttemptsFile), 0); err != nil {
		t.Fatal(err)
	}
	h, err := OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range h.Entries() {
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("an empty %s gave %v, want an unexpected end", AttemptsFile, err)
		}
		return
	}
	t.Fatalf("an empty %s gave no error", AttemptsFile)
}

func TestClassWordsAreFixed(t *testing.T) {
	want := "ok delayed refused rejected unreachable connect-timeout reset closed reply-timeout stalled misrouted probe wrong-answer"
	got := ""
	for _, c := range Classes() {
		text, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got += " " + string(text)
		var back Class
		if err := back.UnmarshalText(text); err != nil || back != c {
			t.Errorf("%q reads back as %v, %v", text, back, err)
		}
		if dropped := c != OK && c != Delayed && c != Probe; c.Dropped() != dropped {
			t.Errorf("%v: dropped is %v", c, c.Dropped())
		}
	}
	if got[1:] != want {
		t.Errorf("the class words are %q, want %q", got[1:], want)
	}
	var c Class
	if err := c.UnmarshalText([]byte("okay")); err == nil {
		t.Error(`"okay" was taken for a class`)
	}
	if _, err := Class(0).MarshalText(); err == nil {
		t.Error("the zero class was given a word")
	}
}
