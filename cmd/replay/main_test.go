package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"replay": main})
}

// TestScripts runs the real program by the scripts under testdata, each of which
// opens with what it guards. $FIXTURES are the streams that real peers wrote.
func TestScripts(t *testing.T) {
	fixtures, err := filepath.Abs("../../wire/dendro/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURES", fixtures)
			return nil
		}})
}
