// The worker on grpc-go; ../README.md describes the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/grpc/xds/csds"
	"google.golang.org/protobuf/proto"
)

const (
	// A hold that gets no answers must not pile up calls without end.
	maxHeldInFlight = 1000
	// The longest command: a call with a long body.
	maxLineBytes = 16 << 20
)

type command struct {
	ID        uint64            `json:"id"`
	Cmd       string            `json:"cmd"`
	Channel   string            `json:"channel"`
	Target    string            `json:"target"`
	Connect   bool              `json:"connect"`
	Hold      string            `json:"hold"`
	PerSecond float64           `json:"per_second"`
	Calls     int               `json:"calls"`
	InFlight  int               `json:"in_flight"`
	Method    string            `json:"method"`
	Body      string            `json:"body"`
	Metadata  map[string]string `json:"metadata"`
	TimeoutMs int               `json:"timeout_ms"`
}

// bytesCodec lets messages, which are *[]byte here, out and in as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }

var _ encoding.CodecV2 = bytesCodec{}

// counts is what became of the calls of one command.
type counts struct {
	mutex      sync.Mutex
	Names      map[string]int `json:"names"`
	Errors     map[string]int `json:"errors"`
	FirstError *string        `json:"first_error"`
}

func newCounts() *counts {
	return &counts{Names: map[string]int{}, Errors: map[string]int{}}
}

func (c *counts) add(message []byte, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err == nil {
		c.Names[string(message)]++
		return
	}
	c.Errors[statusName(status.Code(err))]++
	if c.FirstError == nil {
		text := status.Convert(err).Message()
		c.FirstError = &text
	}
}

// statusName writes DeadlineExceeded as DEADLINE_EXCEEDED, as the other libraries do.
func statusName(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}
	name := strings.Builder{}
	for i, letter := range code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(name.String())
}

func makeCall(channel *grpc.ClientConn, cmd *command, result *counts) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(cmd.TimeoutMs)*time.Millisecond)
	defer cancel()
	for key, value := range cmd.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	request, response := []byte(cmd.Body), []byte(nil)
	err := channel.Invoke(ctx, cmd.Method, &request, &response, grpc.ForceCodecV2(bytesCodec{}))
	result.add(response, err)
}

// hold makes calls at a constant rate in the background, whether or not the answers come.
type hold struct {
	counts  *counts
	stopped chan struct{}
	done    chan struct{}
}

func startHold(channel *grpc.ClientConn, cmd *command) *hold {
	h := &hold{counts: newCounts(), stopped: make(chan struct{}), done: make(chan struct{})}
	go h.run(channel, cmd)
	return h
}

func (h *hold) run(channel *grpc.ClientConn, cmd *command) {
	defer close(h.done)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / cmd.PerSecond))
	defer ticker.Stop()
	calls := sync.WaitGroup{}
	defer calls.Wait()
	slots := make(chan struct{}, maxHeldInFlight)
	for {
		select {
		case <-h.stopped:
			return
		case <-ticker.C:
		}
		slots <- struct{}{}
		calls.Go(func() {
			makeCall(channel, cmd, h.counts)
			<-slots
		})
	}
}

func (h *hold) stop() *counts {
	close(h.stopped)
	<-h.done
	return h.counts
}

// worker is the state between commands.
type worker struct {
	mutex    sync.Mutex
	channels map[string]*grpc.ClientConn
	holds    map[string]*hold
}

func (w *worker) channel(cmd *command) (*grpc.ClientConn, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	channel, ok := w.channels[cmd.Channel]
	if !ok {
		return nil, fmt.Errorf("no channel %s", cmd.Channel)
	}
	return channel, nil
}

func (w *worker) do(cmd *command) (any, error) {
	switch cmd.Cmd {
	case "hello":
		return map[string]string{"library": "grpc-go", "version": grpc.Version}, nil
	case "open":
		return w.open(cmd)
	case "stop":
		return w.stop(cmd)
	case "csds":
		return clientStatus()
	}
	channel, err := w.channel(cmd)
	if err != nil {
		return nil, err
	}
	switch cmd.Cmd {
	case "close":
		w.mutex.Lock()
		delete(w.channels, cmd.Channel)
		w.mutex.Unlock()
		return struct{}{}, channel.Close()
	case "state":
		return map[string]string{"state": state(channel, cmd.Connect)}, nil
	case "call":
		return call(channel, cmd), nil
	case "hold":
		w.mutex.Lock()
		w.holds[cmd.Hold] = startHold(channel, cmd)
		w.mutex.Unlock()
		return struct{}{}, nil
	}
	return nil, fmt.Errorf("no command %s", cmd.Cmd)
}

func (w *worker) open(cmd *command) (any, error) {
	channel, err := grpc.NewClient(cmd.Target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.channels[cmd.Channel] = channel
	return struct{}{}, nil
}

func (w *worker) stop(cmd *command) (any, error) {
	w.mutex.Lock()
	h, ok := w.holds[cmd.Hold]
	delete(w.holds, cmd.Hold)
	w.mutex.Unlock()
	if !ok {
		return nil, fmt.Errorf("no hold %s", cmd.Hold)
	}
	return h.stop(), nil
}

func state(channel *grpc.ClientConn, connect bool) string {
	if connect {
		channel.Connect()
	}
	now := channel.GetState()
	if now == connectivity.TransientFailure {
		return "TRANSIENT_FAILURE"
	}
	return now.String()
}

func call(channel *grpc.ClientConn, cmd *command) *counts {
	result := newCounts()
	due := make(chan struct{}, cmd.Calls)
	for range cmd.Calls {
		due <- struct{}{}
	}
	close(due)
	callers := sync.WaitGroup{}
	for range cmd.InFlight {
		callers.Go(func() {
			for range due {
				makeCall(channel, cmd, result)
			}
		})
	}
	callers.Wait()
	return result
}

func clientStatus() (any, error) {
	server, err := csds.NewClientStatusDiscoveryServer()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	response, err := server.FetchClientStatus(context.Background(), &statuspb.ClientStatusRequest{})
	if err != nil {
		return nil, err
	}
	bytes, err := proto.Marshal(response)
	if err != nil {
		return nil, err
	}
	return map[string]string{"response": base64.StdEncoding.EncodeToString(bytes)}, nil
}

func main() {
	w := &worker{channels: map[string]*grpc.ClientConn{}, holds: map[string]*hold{}}
	output := sync.Mutex{}
	answer := func(cmd *command) {
		result := map[string]any{"id": cmd.ID}
		// Everything that goes wrong is the test's to judge.
		if ok, err := w.do(cmd); err != nil {
			result["error"] = err.Error()
		} else {
			result["ok"] = ok
		}
		output.Lock()
		defer output.Unlock()
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			os.Exit(1)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		cmd := &command{}
		if err := json.Unmarshal(lines.Bytes(), cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go answer(cmd)
	}
}
