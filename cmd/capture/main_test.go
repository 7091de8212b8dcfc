package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes this test binary the program itself, for tests that kill it.
const asProgram = "CAPTURE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main()
	}
	testscript.Main(m, map[string]func(){"capture": main})
}

// TestScripts runs the real program by the scripts under testdata, each of which
// opens with what it guards.
func TestScripts(t *testing.T) {
	dendro, err := filepath.Abs("../../wire/dendro/testdata/real")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
		e.Setenv("DENDRO", dendro) // streams of the real publisher
		return nil
	}})
}
