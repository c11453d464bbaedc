package record

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/events.ndjson instead of comparing with it")

// fillBody gives each field of a body a value that is not zero, so that each attribute is written.
func fillBody(v reflect.Value, seed int) {
	switch x := v.Addr().Interface().(type) {
	case *time.Duration:
		*x = time.Duration(seed) * 1500 * time.Millisecond
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 0, 0, byte(seed)})
		return
	case *netip.AddrPort:
		*x = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(seed)}), 8080)
		return
	case *[]string:
		*x = []string{"node-1", "node-2"}
		return
	case *FlowList:
		*x = FlowList{{netip.MustParseAddrPort("10.0.2.1:40000"), "node-1", time.Second}}
		return
	case *BackendList:
		*x = BackendList{{netip.MustParseAddrPort("10.0.3.1:8080"), 1}, {netip.MustParseAddrPort("10.0.3.2:8080"), 0}}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillBody(v.Elem(), seed)
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", seed))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(seed))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(seed))
	case reflect.Float64:
		v.SetFloat(float64(seed) + 0.5)
	default:
		panic("fill has no value for " + v.Type().String())
	}
}

// events.ndjson is a format on disk: each kind's line, with all of its attributes and with none that can be left out, stays the
// same byte for byte, and is read back as the same event.
func TestEachKindKeepsItsLine(t *testing.T) {
	var lines bytes.Buffer
	for i, zero := range bodies {
		whole := reflect.New(reflect.TypeOf(zero)).Elem()
		for k := range whole.NumField() {
			fillBody(whole.Field(k), k+1)
		}
		if f := whole.FieldByName("Protocol"); f.IsValid() {
			f.SetString("udp")
		}
		e := Event{At: time.Duration(i) * time.Second, Node: "node-1", Object: "object", Text: "a <text> of one line", Body: whole.Interface().(Body)}
		text, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s: %+v is read back as %+v, %v", e.Kind(), e, back, err)
		}
		fmt.Fprintf(&lines, "%s\n", text)
	}
	const file = "testdata/events.ndjson"
	if *update {
		if err := os.WriteFile(file, lines.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./record -run EachKind -update writes it)", err)
	}
	if !bytes.Equal(want, lines.Bytes()) {
		t.Errorf("the lines changed (go test ./record -run EachKind -update writes them):\n%s\nwant\n%s", lines.Bytes(), want)
	}
}

// An event without a body has no kind, and is never written.
func TestAnEventNeedsABody(t *testing.T) {
	if text, err := (Event{Text: "nothing"}).MarshalJSON(); err == nil {
		t.Errorf("%s was written", text)
	}
}
