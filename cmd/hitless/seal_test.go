//go:build unix

package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites/conformance"
)

// keyFiles writes an ed25519 key as openssl does, and an RSA key.
func keyFiles(t *testing.T) (private ed25519.PrivateKey, privateFile, publicFile, rsaFile string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return testfiles.Write(t, t.TempDir(), name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	privateFile = write("key.pem", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(public)
	publicFile = write("key.pub", "PUBLIC KEY", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(other)
	return private, privateFile, publicFile, write("rsa.pem", "PRIVATE KEY", der, err)
}

// Only a record that is signed with the key is accepted. The twin: the same record without a signature, and with that of another.
func TestVerifyWith(t *testing.T) {
	private, _, public, _ := keyFiles(t)
	stranger, _, _, _ := keyFiles(t)
	budget := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("dropped: 10\n"))
	for name, c := range map[string]struct {
		key  ed25519.PrivateKey
		want string
	}{"unsigned": {nil, "not signed"}, "signed by another": {stranger, "signed with the key"}, "signed": {private, "10 of 200 connections dropped"}} {
		dir := t.TempDir()
		writeRun(t, dir)
		sealRun(t, dir, c.key)
		for _, args := range [][]string{{"report", dir}, {"gate", dir, "--budget", budget}} {
			if text := said(t, 3, append(args, "--verify-with", public)...); !strings.Contains(text, c.want) || !strings.Contains(text, "INVALID") {
				t.Errorf("%s, hitless %q:\n%s", name, args, text)
			}
		}
	}
}

// A wrong key is a usage error before anything is written.
func TestWrongKeysAreRefused(t *testing.T) {
	_, private, public, other := keyFiles(t)
	dir, missing := t.TempDir(), filepath.Join(t.TempDir(), "none")
	writeRun(t, dir)
	noKey := testfiles.Write(t, t.TempDir(), "text", []byte("no key"))
	for _, file := range []string{missing, public, other, noKey} {
		for _, command := range []string{"run quiet", "probe 127.0.0.1:1", "watch worker 127.0.0.1:1", "soak", "compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs"} {
			out := filepath.Join(t.TempDir(), "out")
			text := said(t, 2, append(strings.Fields(command), "--out", out, "--sign", file)...)
			if !strings.Contains(text, file) {
				t.Errorf("%s --sign %s:\n%s", command, file, text)
			}
			if _, err := os.Stat(filepath.Join(out, reports.UnfinishedDir)); err == nil {
				t.Errorf("%s --sign %s has begun", command, file)
			}
		}
	}
	for _, file := range []string{missing, private, other, noKey} {
		for _, args := range [][]string{{"report", dir}, {"report", dir, "--format", "json"}, {"report", "serve", dir}} {
			if text := said(t, 2, append(args, "--verify-with", file)...); !strings.Contains(text, file) {
				t.Errorf("%q --verify-with %s:\n%s", args, file, text)
			}
		}
	}
}

// The reports of the history's folder are those of the run; a history that stands alone is refused, and nothing is written into it.
func TestReportOfTheHistorysFolder(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir)
	history := filepath.Join(dir, record.HistoryDir)
	said(t, 3, "report", history)
	if _, err := os.Stat(filepath.Join(dir, reports.ReportFile)); err != nil {
		t.Error(err)
	}
	alone := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(alone, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}
	if text := said(t, 2, "report", alone); !strings.Contains(text, "give the folder that holds it") {
		t.Errorf("a history alone:\n%s", text)
	}
	for _, folder := range []string{history, alone} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 3 {
			t.Errorf("%s has %v, %v", folder, entries, err)
		}
	}
}

// A folder that a run uses is refused at once, with the name of that run, and stays as it is.
func TestASecondRunInTheSameFolder(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir)
	if err := os.WriteFile(filepath.Join(dir, reports.HostFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	claim, err := reports.ClaimRun(dir, "hitless run rollout --seed 7")
	if err != nil {
		t.Fatal(err)
	}
	timeline := testfiles.Write(t, t.TempDir(), "end.timeline", []byte("hitless timeline 1\n+0s end\n"))
	for _, command := range []string{"run quiet", "replay " + timeline, "probe 127.0.0.1:1", "watch start 127.0.0.1:1", "soak", "museum run k8s-85643 k8s-71515",
		"compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs", "conformance", "bench-proxier"} {
		// As a process of its own: a watch starts its program again.
		code, text := call(t, append(strings.Fields(command), "--out", dir)...)
		if code != exitUsage || !strings.Contains(text, "hitless run rollout --seed 7") || strings.Contains(text, conformance.PageFile) {
			t.Errorf("%s: exit %d:\n%s", command, code, text)
		}
	}
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
	if text := said(t, 2, "probe", "127.0.0.1:1", "--out", dir); !strings.Contains(text, "cannot be measured") {
		t.Errorf("the folder is not free again:\n%s", text)
	}
	said(t, 3, "report", dir)
}

// A named pipe in the folder of a run, whose reader would wait for a writer, ends a call at once. The run's own record must be of regular files.
func TestFilesOfARunAreRegular(t *testing.T) {
	budget := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("dropped: 10\n"))
	for _, sealed := range []bool{true, false} {
		for _, name := range []string{"history/run.json", "history/events.ndjson", "history/attempts.bin", reports.HostFile, reports.ReportFile, record.SealFile} {
			dir := t.TempDir()
			writeRun(t, dir)
			if !sealed {
				_ = os.Remove(filepath.Join(dir, record.SealFile)) // it may be the pipe's place
			}
			pipe := filepath.Join(dir, name)
			_ = os.Remove(pipe)
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"report", dir, "--format", "json"}, {"gate", dir, "--budget", budget}, {"report", dir}} {
				code, out, errs := executed(args...)
				if strings.HasPrefix(name, record.HistoryDir) && (code != exitInvalid || !strings.Contains(errs, filepath.Base(name)+" is no regular file")) {
					t.Errorf("hitless %q, sealed %t, %s is a named pipe: exit %d\n%s%s", args[:1], sealed, name, code, out, errs)
				}
				if strings.Contains(out+errs, "PASS") {
					t.Errorf("hitless %q, sealed %t, %s is a named pipe: it passes", args[:1], sealed, name)
				}
			}
		}
	}
}
