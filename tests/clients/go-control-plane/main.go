// An xDS server that is not ours: go-control-plane's cache and server, for one node.
//
// It listens at its argument, and says "ready" then. Each line of its input is a snapshot: {"version": V, "resources": [{"@type": …}, …]}; for each it
// prints "ok", or what is wrong. What clients reject goes to standard error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// Every node is the same one.
type oneNode struct{}

func (oneNode) ID(*core.Node) string { return "node" }

type snapshot struct {
	Version   string            `json:"version"`
	Resources []json.RawMessage `json:"resources"`
}

func read(line []byte) (*cache.Snapshot, error) {
	var read snapshot
	if err := json.Unmarshal(line, &read); err != nil {
		return nil, err
	}
	byType := map[resource.Type][]types.Resource{}
	for _, text := range read.Resources {
		any := &anypb.Any{}
		if err := protojson.Unmarshal(text, any); err != nil {
			return nil, err
		}
		message, err := any.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		byType[any.TypeUrl] = append(byType[any.TypeUrl], message)
	}
	return cache.NewSnapshot(read.Version, byType)
}

func nack(message string) {
	fmt.Fprintln(os.Stderr, "NACK:", message)
}

func open(context context.Context, _ int64, _ string) error {
	if metadata, ok := metadata.FromIncomingContext(context); ok {
		fmt.Fprintln(os.Stderr, "TOKEN:", metadata.Get("authorization"))
	}
	return nil
}

func main() {
	snapshots := cache.NewSnapshotCache(true, oneNode{}, nil)
	callbacks := server.CallbackFuncs{
		StreamOpenFunc:      open,
		DeltaStreamOpenFunc: open,
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			if request.ErrorDetail != nil {
				nack(request.ErrorDetail.Message)
			}
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, request *discovery.DeltaDiscoveryRequest) error {
			if request.ErrorDetail != nil {
				nack(request.ErrorDetail.Message)
			}
			return nil
		},
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	serves := grpc.NewServer()
	ads := server.NewServer(context.Background(), snapshots, callbacks)
	discovery.RegisterAggregatedDiscoveryServiceServer(serves, ads)
	go func() { panic(serves.Serve(listener)) }()
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		snapshot, err := read(lines.Bytes())
		if err == nil {
			err = snapshots.SetSnapshot(context.Background(), "node", snapshot)
		}
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
}
