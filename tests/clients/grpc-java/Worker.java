// The worker on grpc-java, which only opens channels; ../README.md describes the protocol.

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

final class Worker {
  private static final Map<String, ManagedChannel> channels = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    // A fault of the library that ends none of its callers must still end the program, as it would end many applications.
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    });
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (var line = lines.readLine(); line != null; line = lines.readLine()) {
      var command = JsonParser.parseString(line).getAsJsonObject();
      var answer = new JsonObject();
      answer.add("id", command.get("id"));
      try {
        answer.add("ok", run(command));
      } catch (RuntimeException error) {
        answer.addProperty("error", error.toString());
      }
      System.out.println(answer);
    }
    Runtime.getRuntime().halt(0);
  }

  private static JsonObject run(JsonObject command) {
    var ok = new JsonObject();
    switch (command.get("cmd").getAsString()) {
      case "hello" -> {
        ok.addProperty("library", "grpc-java");
        ok.addProperty("version", Grpc.class.getPackage().getImplementationVersion());
      }
      case "open" -> {
        var target = command.get("target").getAsString();
        var channel = Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
        channels.put(command.get("channel").getAsString(), channel);
      }
      case "close" -> channels.remove(command.get("channel").getAsString()).shutdownNow();
      case "state" -> {
        var channel = channels.get(command.get("channel").getAsString());
        ok.addProperty("state", channel.getState(command.get("connect").getAsBoolean()).toString());
      }
      default -> throw new IllegalArgumentException("unknown command");
    }
    return ok;
  }
}
