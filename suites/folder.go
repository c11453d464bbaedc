package suites

import (
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// failedDir has the folders of specs that failed. It is relative to the package of a suite.
const failedDir = "../../out/failed"

// FolderOf is a new folder for a spec of a suite. After a failure it stays, so that a rare difference can be looked at.
func FolderOf(suite string) string {
	ginkgo.GinkgoHelper()
	gomega.Expect(os.MkdirAll(failedDir, 0o755)).To(gomega.Succeed())
	top, err := filepath.Abs(failedDir)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	dir, err := os.MkdirTemp(top, suite+"-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() error {
		if ginkgo.CurrentSpecReport().Failed() {
			ginkgo.GinkgoWriter.Printf("the folders of this spec are kept in %s\n", dir)
			return nil
		}
		return os.RemoveAll(dir)
	})
	return dir
}
