// Checks files of dashboards against Grafana's own schemas: every field is known, has a right value, and is there if it must be.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	// Kinds of panels and queries have schemas of their own.
	plugins.RegisterDefaultPlugins()
	status := 0
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			status = 1
		}
	}
	os.Exit(status)
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var found dashboard.Dashboard
	err = found.UnmarshalJSONStrict(text)
	// It may return a list without errors.
	var list cog.BuildErrors
	if err != nil && !(errors.As(err, &list) && len(list) == 0) {
		return err
	}
	return found.Validate()
}
