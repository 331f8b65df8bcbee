CREATE TABLE "Order_Schedule" (
	"Process" text collate "C" NOT NULL,
	"Name" text collate "C" NOT NULL,
	"Cron" text NOT NULL,
	"TimeZone" text NOT NULL,
	"Each" text NOT NULL,
	"CatchUp" text NOT NULL,
	"JitterSeconds" integer NOT NULL,
	"NextAt" timestamp with time zone NOT NULL,
	"LastAt" timestamp with time zone,
	"TickAt" timestamp with time zone,
	"TickCursor" text,
	"PausedAt" timestamp with time zone,
	"PausedBy" text,
	"Reason" text,
	"RemovedAt" timestamp with time zone,
	"UpdatedAt" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "Order_Schedule_Process_Name_pk" PRIMARY KEY("Process","Name")
);
