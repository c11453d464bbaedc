package analysis

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The promise for a soak at 200 attempts a second, for each hour: record.AttemptBytes on disk and analysisBytes in memory while the
// report is made, for each attempt; and nothing that grows while it is recorded.
const (
	soakRate      = 200
	analysisBytes = 96
	writerBytes   = 4 << 20
)

// held is the live heap.
func held() int64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// soakHour records an hour of a second day: connections over three nodes to pods that come and go each minute, of which
// one in a thousand fails.
func soakHour(dir string) (grown int64, n int, err error) {
	const day = 24 * time.Hour
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{Scenario: "soak"})
	if err != nil {
		return 0, 0, err
	}
	w.Event(record.Event{At: day, Object: "web", Body: record.Lane{ID: 1, Name: "web", Rate: soakRate, Target: recordtest.WebAddress.String(), Protocol: "tcp-new",
		Dial: 3 * time.Second, Reply: time.Second}})
	before := held()
	for n < 3600*soakRate {
		at := day + time.Duration(n)*time.Second/soakRate
		node := recordtest.NodeNames[n%len(recordtest.NodeNames)]
		a := record.Attempt{Lane: 1, Seq: uint64(n), Intended: at, Start: at + 312*time.Microsecond, Connect: 700 * time.Microsecond, Total: 1400 * time.Microsecond,
			Class: record.OK, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)}), uint16(20000+n%40000)),
			Backend: fmt.Sprintf("web-%08x-%d", n/(60*soakRate), n%len(recordtest.NodeNames)), Node: node, Generation: fmt.Sprintf("%08x", n/(60*soakRate)),
			TupleAge: 131 * time.Second, Terminating: 1200 * time.Millisecond}
		if n%1000 == 0 {
			a.Class, a.Backend, a.Node, a.Generation, a.Detail, a.Total = record.ConnectTimeout, "", "", "", "ETIMEDOUT", 3*time.Second
			a.Offender = netip.AddrFrom4([4]byte{10, 0, 0, 2})
		}
		w.Attempt(a)
		n++
	}
	grown = held() - before
	return grown, n, w.Close()
}

func TestAnHourOfSoakHasItsRoom(t *testing.T) {
	dir := t.TempDir()
	grown, n, err := soakHour(dir)
	if err != nil {
		t.Fatal(err)
	}
	if grown > writerBytes {
		t.Errorf("recording %d attempts keeps %d bytes, %d are allowed whatever their number", n, grown, int64(writerBytes))
	}
	info, err := os.Stat(filepath.Join(dir, "history", record.AttemptsFile))
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(n) * record.AttemptBytes; info.Size() > most {
		t.Errorf("%d attempts take %d bytes on disk, %d are allowed", n, info.Size(), most)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := held()
	a, err := New(h)
	if err != nil {
		t.Fatal(err)
	}
	after := held()
	if got := len(a.Lanes[0].Records); got != n {
		t.Errorf("%d of %d attempts came back", got, n)
	}
	if most := int64(n) * analysisBytes; after-before > most {
		t.Errorf("the analysis of %d attempts holds %d bytes, %d are allowed", n, after-before, most)
	}
	t.Logf("%d attempts: %.1f bytes each on disk, %.1f in the analysis; the writer holds %d bytes more at the end", n,
		float64(info.Size())/float64(n), float64(after-before)/float64(n), grown)
}
