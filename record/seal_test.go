package record

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// sealedRun is the folder of a small run with a sealed record.
func sealedRun(t testing.TB, verdict string, failing int, key ed25519.PrivateKey) string {
	t.Helper()
	dir := t.TempDir()
	w, err := NewHistoryWriter(filepath.Join(dir, HistoryDir), Run{Scenario: "rollout", Seed: 1, Clock: "virtual", Nodes: []string{"node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	w.Event(Event{Object: "web", Body: Lane{Name: "web", Target: "203.0.113.10:80", Rate: 100}})
	for i, name := range []string{"baseline", "scenario", "end"} {
		w.Event(Event{At: time.Duration(i) * time.Second, Object: name, Text: name, Body: Phase{}})
	}
	for i := range 200 {
		a := Attempt{Seq: uint64(i), Intended: time.Duration(i) * 10 * time.Millisecond, Class: OK, Total: time.Millisecond, Backend: "web-1"}
		if a.Start = a.Intended; i >= 100 && i < 100+failing {
			a.Class, a.Backend = Refused, ""
		}
		w.Attempt(a)
		if i%50 == 49 { // several blocks
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sealWith(t, dir, verdict, key)
	return dir
}

func sealWith(t testing.TB, dir, verdict string, key ed25519.PrivateKey) {
	t.Helper()
	data, _, err := SealHistory(dir, Sealed{Verdict: verdict, Attempts: 200}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, SealFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// inMemory is a folder as a file system that can be changed.
func inMemory(t testing.TB, dir string) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		m[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// changes are the ways to change the byte at a position.
var changes = map[string]func(data []byte, at int) []byte{
	"flip": func(data []byte, at int) []byte {
		out := bytes.Clone(data)
		out[at] ^= 1 << (at % 8)
		return out
	},
	"zero": func(data []byte, at int) []byte {
		out := bytes.Clone(data)
		out[at] = 0
		return out
	},
	"delete":   func(data []byte, at int) []byte { return slices.Delete(bytes.Clone(data), at, at+1) },
	"insert":   func(data []byte, at int) []byte { return slices.Insert(bytes.Clone(data), at, ' ') },
	"cut":      func(data []byte, at int) []byte { return bytes.Clone(data[:at]) },
	"two line": duplicateLine,
}

// duplicateLine writes the line of a position twice.
func duplicateLine(data []byte, at int) []byte {
	begin, end := bytes.LastIndexByte(data[:at], '\n')+1, len(data)
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		end = at + i + 1
	}
	return slices.Insert(bytes.Clone(data), end, data[begin:end]...)
}

// Every change of every byte of a record or of its seal is damage that names the file; so is a file that is added or missing.
func TestEveryChangedByteOfASealedRecordIsFound(t *testing.T) {
	count := 0
	for verdict, failing := range map[string]int{"pass": 0, "fail": 1} {
		whole := inMemory(t, sealedRun(t, verdict, failing, nil))
		whole[HistoryDir+"/"+TimelineFile] = &fstest.MapFile{Data: []byte("hitless timeline 1\n+1s end\n")}
		dir := t.TempDir()
		if err := os.CopyFS(dir, whole); err != nil {
			t.Fatal(err)
		}
		sealWith(t, dir, verdict, nil)
		whole = inMemory(t, dir)
		if h, err := OpenSignedFS(whole, "run", nil); err != nil || h.Seal.Verdict != verdict || h.Distrust() != "" {
			t.Fatalf("the unchanged record: %+v, %v", h, err)
		}
		for name, file := range whole {
			data := file.Data
			for at := range data {
				for how, change := range changes {
					changed := change(data, at)
					if bytes.Equal(changed, data) {
						continue
					}
					whole[name] = &fstest.MapFile{Data: changed}
					_, err := OpenSignedFS(whole, "run", nil)
					if !IsDamaged(err) || name != SealFile && !strings.Contains(err.Error(), filepath.Base(name)) {
						t.Fatalf("%s of byte %d of %s: %v", how, at, name, err)
					}
					count++
				}
			}
			delete(whole, name)
			h, err := OpenSignedFS(whole, "run", nil)
			if name != SealFile && !IsDamaged(err) || name == SealFile && (err != nil || h.Distrust() == "") {
				t.Errorf("without %s: %v", name, err)
			}
			whole[name] = file
			count++
		}
		for _, name := range []string{"added", ".hidden", "folder/file"} {
			whole[HistoryDir+"/"+name] = &fstest.MapFile{}
			if _, err := OpenSignedFS(whole, "run", nil); !IsDamaged(err) || !strings.Contains(err.Error(), strings.Split(name, "/")[0]+" was added") {
				t.Errorf("with %s: %v", name, err)
			}
			delete(whole, HistoryDir+"/"+name)
			count++
		}
	}
	t.Logf("%d changed records were looked at", count)
	if count < 50_000 {
		t.Errorf("only %d changes were tried", count)
	}
}

// Damage is named by its bytes; in events.ndjson by its line, and in attempts.bin by its run time and what is intact.
func TestDamageIsNamedByItsPosition(t *testing.T) {
	for file, want := range map[string]struct {
		at    func([]byte) int
		words []string
	}{
		EventsFile: {func(d []byte) int { return bytes.Index(d, []byte("scenario")) }, []string{"events.ndjson was changed in the bytes 0 to ", "line 3"}},
		AttemptsFile: {func(d []byte) int { return len(d) * 5 / 8 }, []string{"attempts.bin was changed in the bytes 0 to ", "run time 0.0 s to 2.0 s",
			"intact are its attempts of the run time 0.0 s to 1.0 s, 1.5 s to 2.0 s"}},
	} {
		dir := sealedRun(t, "fail", 1, nil)
		path := filepath.Join(dir, HistoryDir, file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[want.at(data)] ^= 4
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{dir, filepath.Join(dir, HistoryDir)} {
			_, err = OpenHistory(folder)
			for _, word := range append(want.words, "INVALID", dir) {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%s in %s: %v lacks %q", file, folder, err, word)
				}
			}
		}
	}
}

// A record without a seal opens, and is not trusted. The program that writes it opens it without that.
func TestARecordWithoutASealIsNotTrusted(t *testing.T) {
	dir := sealedRun(t, "pass", 0, nil)
	if h, err := OpenHistory(dir); err != nil || h.Distrust() != "" {
		t.Fatalf("a sealed record: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, SealFile)); err != nil {
		t.Fatal(err)
	}
	if h, err := OpenHistory(dir); err != nil || !strings.Contains(h.Distrust(), "no seal") {
		t.Errorf("without a seal: %v", err)
	}
	if h, err := OpenUnsealed(dir); err != nil || h.Distrust() != "" {
		t.Errorf("for its writer: %v", err)
	}
}

// unreadable is a folder with one file that this user may not read.
type unreadable struct {
	fs.FS
	file string
}

func (u unreadable) Open(name string) (fs.File, error) {
	if name == u.file {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.FS.Open(name)
}

// A record that this user may not read is not damaged.
func TestARecordThatMayNotBeReadIsNotDamaged(t *testing.T) {
	dir := sealedRun(t, "pass", 0, nil)
	for _, file := range []string{SealFile, HistoryDir, HistoryDir + "/" + RunFile, HistoryDir + "/" + AttemptsFile} {
		_, err := OpenSignedFS(unreadable{os.DirFS(dir), file}, dir, nil)
		if !errors.Is(err, fs.ErrPermission) || IsDamaged(err) {
			t.Errorf("%s may not be read: %v", file, err)
		}
	}
}

// A seal that is no regular file is damage, and is not waited for.
func TestASealThatIsALinkIsDamage(t *testing.T) {
	dir := sealedRun(t, "pass", 0, nil)
	seal := filepath.Join(dir, SealFile)
	if err := errors.Join(os.Rename(seal, seal+".away"), os.Symlink(seal+".away", seal)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHistory(dir); !IsDamaged(err) {
		t.Errorf("%v", err)
	}
}

// A seal that fits another, changed record needs the private key.
func TestOnlyTheSignerCanSeal(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, forger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signed := sealedRun(t, "fail", 1, private)
	for _, dir := range []string{signed, filepath.Join(signed, HistoryDir)} {
		if h, err := OpenSigned(dir, public); err != nil || h.Seal.Signature == "" {
			t.Errorf("a signed record: %v", err)
		}
	}
	if _, err := OpenSigned(signed, nil); err != nil {
		t.Errorf("a signed record for a reader without a key: %v", err)
	}
	if _, err := OpenSigned(signed, other); !IsDamaged(err) || !strings.Contains(err.Error(), "signed with the key") {
		t.Errorf("for another key: %v", err)
	}
	for name, key := range map[string]ed25519.PrivateKey{"unsigned": nil, "forged": forger} {
		sealWith(t, signed, "pass", key)
		if _, err := OpenSigned(signed, public); !IsDamaged(err) {
			t.Errorf("an %s seal: %v", name, err)
		}
		if _, err := OpenHistory(signed); err != nil {
			t.Errorf("an %s seal without a key: %v", name, err)
		}
	}
	if err := os.Remove(filepath.Join(signed, SealFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSigned(signed, public); !IsDamaged(err) {
		t.Errorf("without a seal: %v", err)
	}
}

// A seal with the signer's name and a signature of another content is refused.
func TestASignatureIsOfTheWholeSeal(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := sealedRun(t, "fail", 1, private)
	h, err := OpenSigned(dir, public)
	if err != nil {
		t.Fatal(err)
	}
	h.Seal.Verdict = "pass"
	data, err := h.Seal.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, SealFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSigned(dir, public); !IsDamaged(err) || !strings.Contains(err.Error(), "signature") {
		t.Errorf("%v", err)
	}
}

// BenchmarkSeal seals the record of a run of two minutes with one lane at 100 per second, and one of six million attempts.
func BenchmarkSeal(b *testing.B) {
	for _, attempts := range []int{11_600, 6_000_000} {
		b.Run(fmt.Sprint(attempts), func(b *testing.B) {
			dir := b.TempDir()
			w, err := NewHistoryWriter(filepath.Join(dir, HistoryDir), Run{Scenario: "rollout", Seed: 1, Clock: "virtual", Nodes: []string{"node-1"}})
			if err != nil {
				b.Fatal(err)
			}
			for i := range attempts {
				at := time.Duration(i) * 10 * time.Millisecond
				w.Attempt(Attempt{Seq: uint64(i), Intended: at, Start: at, Class: OK, Total: time.Millisecond, Backend: "web-1", Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 40000)})
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				_, s, err := SealHistory(dir, Sealed{Verdict: "pass", Attempts: attempts}, nil)
				if err != nil {
					b.Fatal(err)
				}
				size := int64(0)
				for _, f := range s.Files {
					size += f.Bytes
				}
				b.SetBytes(size)
			}
		})
	}
}

// Seals that are accepted have one form only.
func FuzzSeal(f *testing.F) {
	data, err := os.ReadFile(filepath.Join(sealedRun(f, "fail", 1, nil), SealFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add(bytes.Replace(data, []byte(`"verdict": "fail"`), []byte(`"verdict": "pass"`), 1))
	f.Add([]byte("{" + sumBegin + strings.Repeat("0", 64) + sumEnd))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSeal(data)
		if err != nil {
			return
		}
		if again, err := s.encode(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("a seal was accepted in another form (%v):\n%s", err, data)
		}
		_ = s.verify(fstest.MapFS{})
	})
}
